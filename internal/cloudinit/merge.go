package cloudinit

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// refused are keys that a user's cloud-config cannot have, and why.
var refused = map[string]string{
	"hostname":                   ownName,
	"fqdn":                       ownName,
	"prefer_fqdn_over_hostname":  ownName,
	"preserve_hostname":          ownName,
	"create_hostname_file":       ownName,
	"manage_etc_hosts":           "a node has to find its own name without a DNS server",
	"power_state":                "the VM would go down while it is set up; it is switched on and off from outside",
	"package_reboot_if_required": rebootsWithin,
	"apt_reboot_if_required":     rebootsWithin,
	"cloud_init_modules":         ownModules,
	"cloud_config_modules":       ownModules,
	"cloud_final_modules":        ownModules,
	"network":                    "cloud-init reads no network from there, and that of a node is set up already",
	"merge_how":                  ownMerge,
	"merge_type":                 ownMerge,
	"launch-index":               "cloud-init would pass over the whole configuration",
}

const (
	ownName       = "a node has the name of its VM, and is not found by another one"
	rebootsWithin = "the VM could restart while it is set up, and what is cut off then never runs again"
	ownModules    = "a node is set up by modules of cloud-init that the key could leave out"
	ownMerge      = "the cloud-config is merged before cloud-init sees it: maps are merged, and lists joined"
)

// lists are the keys whose lists both sides may have.
var lists = []string{"ssh_authorized_keys", "fs_setup", "mounts", "write_files", "runcmd"}

// CheckExtra says what is wrong with a text for UserData.Extra, as far as it can be told without the rest: UserData.Encode
// finds besides what clashes with it. An error names keys and lines, never values.
func CheckExtra(text string) error {
	_, err := readExtra([]byte(text))
	return err
}

// checkExtra refuses what would keep a node from being set up.
func checkExtra(theirs *yaml.Node) error {
	for _, key := range slices.Sorted(maps.Keys(refused)) {
		if at := indexOf(theirs, key); at >= 0 {
			return fmt.Errorf("line %d: it cannot set %s: %s", theirs.Content[at].Line, key, refused[key])
		}
	}
	for _, key := range lists {
		if list := get(theirs, key); list != nil && list.Kind != yaml.SequenceNode && !isNullNode(list) {
			return fmt.Errorf("line %d: %s is no list", list.Line, key)
		}
	}
	// One entry of another kind, and cloud-init runs no command, gives nobody a key, or mounts nothing.
	for _, entry := range entries(theirs, "runcmd") {
		if !isTextNode(entry) && !isNullNode(entry) && entry.Kind != yaml.SequenceNode {
			return fmt.Errorf("line %d: a command in runcmd is neither a text nor a list of texts; cloud-init takes words such as yes, and numbers, for text only in quotes", entry.Line)
		}
	}
	for _, entry := range entries(theirs, "ssh_authorized_keys") {
		if !isTextNode(entry) {
			return fmt.Errorf("line %d: a key in ssh_authorized_keys is no text", entry.Line)
		}
	}
	for _, entry := range entries(theirs, "write_files") {
		if entry.Kind != yaml.MappingNode || !isTextNode(get(entry, "path")) {
			return fmt.Errorf("line %d: a file in write_files has no path", entry.Line)
		}
	}
	for _, entry := range entries(theirs, "mounts") {
		if entry.Kind != yaml.SequenceNode || len(entry.Content) == 0 {
			return fmt.Errorf("line %d: an entry of mounts is not a list of a device and where it is mounted", entry.Line)
		}
	}
	for _, entry := range entries(theirs, "fs_setup") {
		if entry.Kind != yaml.MappingNode {
			return fmt.Errorf("line %d: an entry of fs_setup is no mapping", entry.Line)
		}
	}
	return nil
}

// merge adds the user's cloud-config to the document of u. Where one of both has to give way, it is the document's own
// defaults; what a node depends on is refused when it is read, or is an error here.
func (u UserData) merge(ours, theirs *yaml.Node) error {
	if err := u.clash(theirs); err != nil {
		return err
	}
	for i := 0; i < len(theirs.Content); i += 2 {
		key, value := theirs.Content[i], theirs.Content[i+1]
		own := get(ours, key.Value)
		switch {
		case key.Tag != "!!str" || own == nil:
			ours.Content = append(ours.Content, key, value)
		case isNullNode(value):
		case key.Value == "runcmd":
			own.Content = slices.Concat(apart(value.Content), own.Content)
		case key.Value == "mounts" || key.Value == "fs_setup":
			// What the user mounts may stand below what is mounted here.
			own.Content = append(own.Content, value.Content...)
		case slices.Contains(lists, key.Value):
			own.Content = slices.Concat(value.Content, own.Content)
		case own.Kind == yaml.MappingNode && value.Kind == yaml.MappingNode:
			addMissing(value, own)
			*own = *value
		default:
			*own = *value
		}
	}
	return nil
}

// apart puts commands into a subshell: all of runcmd becomes one script, and what the user's do to their shell, such as
// exit, set -e or cd, must not reach the commands that set up the node.
func apart(commands []*yaml.Node) []*yaml.Node {
	if len(commands) == 0 {
		return nil
	}
	line := func(s string) *yaml.Node {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: s}
	}
	return slices.Concat([]*yaml.Node{line("( :")}, commands, []*yaml.Node{line(")")})
}

// addMissing adds to a mapping what it has not and another one has.
func addMissing(mapping, defaults *yaml.Node) {
	for i := 0; i < len(defaults.Content); i += 2 {
		if get(mapping, defaults.Content[i].Value) == nil {
			mapping.Content = append(mapping.Content, defaults.Content[i:i+2]...)
		}
	}
}

// clash is an error for what the user and u do with the same file, disk or user.
func (u UserData) clash(theirs *yaml.Node) error {
	if len(u.SSHAuthorizedKeys) > 0 && !hasDefaultUser(theirs) {
		return fmt.Errorf("line %d: users lacks default, the image's own user, whom the SSH keys of the cluster are for; add default to the list", get(theirs, "users").Line)
	}
	files := u.files()
	for _, entry := range entries(theirs, "write_files") {
		name := path.Clean("/" + get(entry, "path").Value)
		if slices.ContainsFunc(files, func(f File) bool { return path.Clean(f.Path) == name }) {
			return fmt.Errorf("line %d: the file %s is written already", entry.Line, name)
		}
		for _, d := range u.Disks {
			if below(name, d.MountPath) && !isTrue(get(entry, "defer")) {
				return fmt.Errorf("line %d: the file %s is written before the disk is mounted at %s, which hides it; add defer: true", entry.Line, name, d.MountPath)
			}
		}
	}
	for _, d := range u.Disks {
		device := string(d.device())
		for _, entry := range entries(theirs, "mounts") {
			if entry.Content[0].Value == device || len(entry.Content) > 1 && path.Clean(entry.Content[1].Value) == d.MountPath {
				return fmt.Errorf("line %d: a disk is mounted at %s already", entry.Line, d.MountPath)
			}
		}
		for _, entry := range entries(theirs, "fs_setup") {
			if name := get(entry, "device"); name != nil && name.Value == device {
				return fmt.Errorf("line %d: the disk at %s has a file system already", entry.Line, d.MountPath)
			}
		}
		if setup := get(theirs, "disk_setup"); setup != nil && get(setup, device) != nil {
			return fmt.Errorf("line %d: the disk at %s is not to be parted", setup.Line, d.MountPath)
		}
	}
	return nil
}

// hasDefaultUser reports whether cloud-init makes the image's default user, which it does unless a list of users leaves it
// out (https://docs.cloud-init.io/en/latest/reference/modules.html#users-and-groups).
func hasDefaultUser(theirs *yaml.Node) bool {
	users, user := get(theirs, "users"), get(theirs, "user")
	if users == nil || user != nil && !isNullNode(user) {
		return true
	}
	switch users.Kind {
	case yaml.MappingNode: // of an old form
		user = get(users, "default")
		return user != nil && (user.Kind == yaml.MappingNode || isTrue(user))
	case yaml.SequenceNode:
		return slices.ContainsFunc(users.Content, func(u *yaml.Node) bool {
			if u.Kind == yaml.MappingNode {
				name := get(u, "name")
				return name == nil || name.Value == "default"
			}
			return named(u, "default")
		})
	default:
		return named(users, "default")
	}
}

// named reports whether a text is a list with commas that has a name.
func named(n *yaml.Node, name string) bool {
	return slices.ContainsFunc(strings.Split(n.Value, ","), func(s string) bool { return strings.TrimSpace(s) == name })
}

// isTrue reports whether cloud-init takes a value for true.
func isTrue(n *yaml.Node) bool {
	return n != nil && n.Kind == yaml.ScalarNode && slices.Contains([]string{"true", "yes", "on", "1"}, strings.ToLower(n.Value))
}

// entries is the list under a key, empty where there is none.
func entries(mapping *yaml.Node, key string) []*yaml.Node {
	if list := get(mapping, key); list != nil && list.Kind == yaml.SequenceNode {
		return list.Content
	}
	return nil
}

// get is what a mapping has under a text, nil for none.
func get(mapping *yaml.Node, key string) *yaml.Node {
	if at := indexOf(mapping, key); at >= 0 {
		return mapping.Content[at+1]
	}
	return nil
}

// indexOf finds the key in the content of a mapping; it is -1 where there is none, or no mapping.
func indexOf(mapping *yaml.Node, key string) int {
	if mapping.Kind == yaml.MappingNode {
		for i := 0; i < len(mapping.Content); i += 2 {
			if k := mapping.Content[i]; k.Tag == "!!str" && k.Value == key {
				return i
			}
		}
	}
	return -1
}
