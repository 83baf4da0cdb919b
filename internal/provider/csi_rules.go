package provider

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	slash "path"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// directoryForm is that of a directory on the nodes that an add-on fills.
func directoryForm(attribute string) form {
	const rule = "an absolute path of letters, digits, dots, dashes and underscores"
	return form{thing: attribute, rule: rule, check: func(s string) error {
		below := func(tree string) bool { return s == tree || strings.HasPrefix(s, tree+"/") }
		switch {
		case slices.Contains(systemDirectories, s), slices.ContainsFunc(systemTrees, below):
			return errors.New("it is a directory of the system, or below one; choose another")
		case !mountPath.MatchString(s), slash.Clean(s) != s:
			return errors.New("it has to be " + rule)
		}
		return nil
	}}
}

func nfsServerForm() form {
	return form{thing: "csi.nfs.server", rule: "a DNS name or an IP address, without a port", check: func(s string) error {
		switch host, dir, found := strings.Cut(s, ":/"); {
		case found && certifiable(host):
			return fmt.Errorf("the export stands in an attribute of its own; write server = %q, path = %q", host, "/"+dir)
		case !certifiable(s):
			return errors.New(`it is neither a DNS name nor an IP address, such as "nas.example" or "192.0.2.5"`)
		}
		if ip, err := netip.ParseAddr(s); err == nil && (ip.IsLoopback() || ip.IsUnspecified()) {
			return errors.New("it is the address of each node itself; give one that leads to the server")
		}
		return nil
	}}
}

func exportForm() form {
	return form{thing: "csi.nfs.path", rule: "an absolute path", check: func(s string) error {
		if !strings.HasPrefix(s, "/") || slash.Clean(s) != s || strings.ContainsAny(s, " \t\r\n") {
			return errors.New(`it has to be an absolute path in its shortest form and without blanks, such as "/export/k3s"`)
		}
		return nil
	}}
}

// mountOptionForm is that of one option of mount.nfs. Those for the version have an attribute (https://man7.org/linux/man-pages/man5/nfs.5.html).
func mountOptionForm() form {
	return form{thing: "mount option", rule: "one option of mount.nfs", check: func(s string) error {
		switch name, _, _ := strings.Cut(s, "="); {
		case s == "" || strings.ContainsAny(s, ", \t\r\n"):
			return errors.New(`it has to be one option, such as "hard" or "timeo=600"; give each as an element of its own`)
		case slices.Contains([]string{"nfsvers", "vers", "minorversion", "v2", "v3", "v4", "v4.0", "v4.1", "v4.2"}, name):
			return errors.New("the version of the protocol has an attribute of its own; set nfs_version")
		}
		return nil
	}}
}

// exportRule validates that it is told once where an NFS export is.
type exportRule struct{}

// Description returns the rule.
func (exportRule) Description(context.Context) string { return "pool, or server and path" }

// MarkdownDescription returns the rule.
func (r exportRule) MarkdownDescription(ctx context.Context) string { return r.Description(ctx) }

// ValidateObject checks what is known.
func (exportRule) ValidateObject(_ context.Context, req validator.ObjectRequest, resp *validator.ObjectResponse) {
	o := req.ConfigValue
	pool, server, dir := part[types.String](o, "pool"), part[types.String](o, "server"), part[types.String](o, "path")
	if o.IsNull() || !known(o, pool, server, dir) {
		return
	}
	refuse := func(attribute, text string) {
		task{"use", "csi.nfs", ""}.failAt(&resp.Diagnostics, req.Path.AtName(attribute), errors.New(text))
	}
	switch {
	case !pool.IsNull() && (!server.IsNull() || !dir.IsNull()):
		refuse("pool", "the pool tells server and path; leave them out, or pool")
	case !pool.IsNull():
	case server.IsNull() && dir.IsNull():
		task{"use", "csi.nfs", ""}.failAt(&resp.Diagnostics, req.Path, errors.New("it has to tell where the export is: by pool, or by server and path"))
	case server.IsNull():
		refuse("server", "it is missing beside path")
	case dir.IsNull():
		refuse("path", "it is missing beside server")
	}
}

// storageRule validates that the default class is that of a tier which is on.
type storageRule struct{}

// Description returns the rule.
func (storageRule) Description(context.Context) string { return "default_class is that of a tier" }

// MarkdownDescription returns the rule.
func (r storageRule) MarkdownDescription(ctx context.Context) string { return r.Description(ctx) }

// ValidateObject checks what is known.
func (storageRule) ValidateObject(_ context.Context, req validator.ObjectRequest, resp *validator.ObjectResponse) {
	class := part[types.String](req.ConfigValue, "default_class")
	if req.ConfigValue.IsNull() || class.IsNull() || !known(req.ConfigValue, class) {
		return
	}
	name, ok := map[string]string{record.LocalPathClass: "local_path", record.NFSClass: "nfs", record.LonghornClass: "longhorn"}[class.ValueString()]
	if !ok {
		return // Its own validator has told what is wrong with it.
	}
	if t := part[types.Object](req.ConfigValue, name); t.IsNull() && known(t) {
		task{"use", "csi.default_class", class.ValueString()}.failAt(&resp.Diagnostics, req.Path.AtName("default_class"),
			fmt.Errorf("the tier of this class is not on; add csi.%s, or choose the class of a tier that is", name))
	}
}
