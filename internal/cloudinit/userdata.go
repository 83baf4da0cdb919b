// Package cloudinit writes what cloud-init reads at a VM's first boot: user-data, network configuration, and the seed
// image that carries both (https://docs.cloud-init.io/en/latest/reference/datasources/nocloud.html).
//
// YAML is encoded from data, never pasted together from text.
package cloudinit

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"go.yaml.in/yaml/v3"
)

// header is how user-data must begin, to the byte, for cloud-init to take it for a configuration; blank asks for nothing.
const (
	header = "#cloud-config\n"
	blank  = header + "{}\n"
)

// UserData is what a VM is to do at its first boot. File systems grow to the size of the disk in any case: cloud-init
// does that unless told otherwise. The zero UserData asks for nothing.
type UserData struct {
	Hostname string
	// Files are written before Commands run.
	Files []File
	// Commands run once, in this order, as root, without a shell between.
	Commands [][]string
	// SSHAuthorizedKeys may log in as the default user of the image.
	SSHAuthorizedKeys []string
	// Disks are made and mounted before Commands run.
	Disks []Disk
	// Extra is a user's own cloud-config. Its commands run first, whatever becomes of them; its lists of files, keys and
	// mounts join those here; its settings for packages go before the defaults here. What would keep the VM from being set
	// up, and what clashes with a field here, is an error. bootcmd runs at each boot only as long as the seed is not scrubbed.
	Extra []byte
}

// File is a file that is written as root's.
type File struct {
	// Path is absolute; directories on the way are made.
	Path    string
	Content []byte
	// Mode holds permission bits only.
	Mode fs.FileMode
}

// document is a cloud-config (https://docs.cloud-init.io/en/latest/reference/modules.html). The keys from PackageUpdate to
// SSHGenKeyTypes are defaults, which Extra may set otherwise.
type document struct {
	Hostname         text `yaml:"hostname"`
	PreserveHostname bool `yaml:"preserve_hostname"`
	// The node's own name resolves without a DNS server that knows it.
	ManageEtcHosts text `yaml:"manage_etc_hosts"`
	// The image has all that a node needs, and its package sources are those that its maker chose.
	PackageUpdate bool `yaml:"package_update"`
	Apt           struct {
		PreserveSourcesList bool `yaml:"preserve_sources_list"`
	} `yaml:"apt"`
	// An RSA key takes long to make where the processor is emulated, and no client needs one.
	SSHGenKeyTypes    []text       `yaml:"ssh_genkeytypes"`
	SSHAuthorizedKeys []text       `yaml:"ssh_authorized_keys,omitempty"`
	FSSetup           []fileSystem `yaml:"fs_setup,omitempty"`
	Mounts            [][]text     `yaml:"mounts,omitempty"`
	WriteFiles        []entry      `yaml:"write_files,omitempty"`
	RunCmd            [][]text     `yaml:"runcmd,omitempty"`
}

// entry is a file in a cloud-config.
type entry struct {
	Path        text `yaml:"path"`
	Permissions text `yaml:"permissions"`
	Encoding    text `yaml:"encoding,omitempty"`
	Content     any  `yaml:"content"`
}

// Encode is the user-data as cloud-init reads it. It holds the content of the files, and so their secrets.
func (u UserData) Encode() ([]byte, error) {
	switch {
	case u.Hostname != "":
	case len(u.Files)+len(u.Commands)+len(u.SSHAuthorizedKeys)+len(u.Disks)+len(u.Extra) == 0:
		return []byte(blank), nil
	default:
		return nil, errors.New("encode user-data: no hostname")
	}
	d := document{
		Hostname:          text(u.Hostname),
		ManageEtcHosts:    "localhost",
		SSHGenKeyTypes:    []text{"ed25519", "ecdsa"},
		SSHAuthorizedKeys: texts(u.SSHAuthorizedKeys),
	}
	d.Apt.PreserveSourcesList = true
	for _, f := range u.files() {
		if !path.IsAbs(f.Path) || f.Mode != f.Mode.Perm() {
			return nil, fmt.Errorf("encode user-data: file %q needs an absolute path and a mode of permission bits, not %v", f.Path, f.Mode)
		}
		d.WriteFiles = append(d.WriteFiles, f.entry())
	}
	for _, disk := range u.Disks {
		if err := disk.check(u.Files); err != nil {
			return nil, fmt.Errorf("encode user-data: %w", err)
		}
		d.FSSetup = append(d.FSSetup, disk.fileSystem())
		d.Mounts = append(d.Mounts, disk.mount())
	}
	for _, c := range u.Commands {
		if len(c) == 0 {
			return nil, errors.New("encode user-data: an empty command")
		}
		d.RunCmd = append(d.RunCmd, texts(c))
	}
	var ours yaml.Node
	if err := ours.Encode(d); err != nil {
		return nil, fmt.Errorf("encode user-data: %w", err)
	}
	theirs, err := readExtra(u.Extra)
	if err == nil && theirs != nil {
		err = u.merge(&ours, theirs)
	}
	if err != nil {
		return nil, fmt.Errorf("the user's cloud-config: %w", err)
	}
	b, err := encode(&ours)
	if err != nil {
		return nil, fmt.Errorf("encode user-data: %w", err)
	}
	return append([]byte(header), b...), nil
}

// files are the Files, and those that the Disks need.
func (u UserData) files() []File {
	files := slices.Clone(u.Files)
	for _, d := range u.Disks {
		if d.Unit != "" {
			files = append(files, d.requirement())
		}
	}
	return files
}

// entry keeps text legible, and encodes what YAML or its readers might not give back to the byte.
func (f File) entry() entry {
	e := entry{Path: text(f.Path), Permissions: text(fmt.Sprintf("%04o", f.Mode))}
	if plain(f.Content) {
		e.Content = block(f.Content)
	} else {
		e.Encoding, e.Content = "b64", block(base64.StdEncoding.EncodeToString(f.Content))
	}
	return e
}

// plain reports whether a YAML block holds a content as it is: lines of printable ASCII and tabs, the first of which
// sets the indentation.
func plain(content []byte) bool {
	if len(content) == 0 || bytes.IndexByte([]byte(" \t\n"), content[0]) >= 0 {
		return false
	}
	for _, c := range content {
		if (c < ' ' || c > '~') && c != '\n' && c != '\t' {
			return false
		}
	}
	return true
}

// text is a string that is quoted always: readers of YAML 1.1, such as cloud-init's, see numbers, truth values and
// times where the encoder's YAML 1.2 sees none.
type text string

// MarshalYAML implements yaml.Marshaler.
func (t text) MarshalYAML() (any, error) {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: string(t)}, nil
}

// block is a string that keeps its lines.
type block string

// MarshalYAML implements yaml.Marshaler.
func (b block) MarshalYAML() (any, error) {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.LiteralStyle, Value: string(b)}, nil
}

func texts(s []string) []text {
	out := make([]text, len(s))
	for i := range s {
		out[i] = text(s[i])
	}
	return out
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	e.CompactSeqIndent()
	if err := errors.Join(e.Encode(v), e.Close()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
