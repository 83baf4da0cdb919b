package provider

import (
	"context"
	"errors"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// openExport is the storage pool whose definition still has to tell where the NFS export is, "" where there is none.
func openExport(csi types.Object) string {
	nfs := part[types.Object](csi, "nfs")
	pool := part[types.String](nfs, "pool")
	told := func(name string) bool {
		s := part[types.String](nfs, name)
		return known(s) && !s.IsNull()
	}
	if !known(csi, nfs, pool) || told("server") && told("path") {
		return ""
	}
	return pool.ValueString()
}

// withExport is a csi whose NFS export is at a server and a path.
func withExport(csi types.Object, server, dir types.String) types.Object {
	nfs, all := part[types.Object](csi, "nfs").Attributes(), csi.Attributes()
	nfs["server"], nfs["path"] = server, dir
	all["nfs"] = types.ObjectValueMust(nfsTypes, nfs)
	return types.ObjectValueMust(csiTypes, all)
}

// withoutOpenExport is a csi with an empty export where the pool still has to tell it: the engine knows what that means.
func withoutOpenExport(csi types.Object) types.Object {
	if openExport(csi) == "" {
		return csi
	}
	return withExport(csi, types.StringNull(), types.StringNull())
}

// keptExport is the csi of a plan with what a state tells of the NFS export, as long as the pool is the same: it is read once, so
// that volumes are looked for where they were made.
func keptExport(plan, state types.Object) types.Object {
	was := part[types.Object](state, "nfs")
	server, dir := part[types.String](was, "server"), part[types.String](was, "path")
	if pool := openExport(plan); pool == "" || part[types.String](was, "pool").ValueString() != pool || server.IsNull() || dir.IsNull() {
		return plan
	}
	return withExport(plan, server, dir)
}

// planExport plans where the NFS export of a pool is, which the hypervisors are asked. While those that may have the pool are silent it
// stays open, and the apply asks again.
func (b *backend) planExport(ctx context.Context, t task, csi types.Object, diags *diag.Diagnostics) types.Object {
	pool := openExport(csi)
	if pool == "" {
		return csi
	}
	open := withExport(csi, types.StringUnknown(), types.StringUnknown())
	if b == nil || !b.known || diags.HasError() {
		return open
	}
	ctx, cancel := context.WithTimeout(ctx, cluster.DefaultReadTimeout)
	defer cancel()
	e, err := b.engine.Export(ctx, pool)
	if err != nil {
		if !errors.Is(err, machine.ErrUnreachable) {
			t.failAt(diags, clusterPaths[machine.FieldNFSPool], err)
		}
		return open
	}
	return withExport(csi, types.StringValue(e.Server), types.StringValue(e.Path))
}
