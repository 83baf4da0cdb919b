package kubelab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/kubeapi"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/wire"
)

// The controllers that a k3s server embeds beside Kubernetes' own. The double leaves them to the lab, where they cost
// no emulated CPU: the cloud controller's node initialisation, the etcd member controller, the owner references of
// node-password secrets, and the endpoints of the service "kubernetes".
const (
	controlEvery = 2 * time.Second
	// cloudDelay is how long the cloud controller takes to initialise a node (seen: 10 to 30 s).
	cloudDelay = 10 * time.Second
	// orphanAfter is when a node-password secret without a node is removed.
	orphanAfter = 10 * time.Minute

	cloudTaint        = "node.cloudprovider.kubernetes.io/uninitialized"
	controlPlaneLabel = "node-role.kubernetes.io/control-plane"
	etcdLabel         = "node-role.kubernetes.io/etcd"
	etcdFinalizer     = "wrangler.cattle.io/managed-etcd-controller"
	etcdNodeName      = "etcd.k3s.cattle.io/node-name"
	etcdNodeAddress   = "etcd.k3s.cattle.io/node-address"
	etcdRemove        = "etcd.k3s.cattle.io/remove"
	etcdRemoved       = "etcd.k3s.cattle.io/removed-node-name"
	passwordType      = "k3s.cattle.io/node-password"
	passwordSuffix    = ".node-password.k3s"
)

// control runs the embedded controllers until ctx ends. What fails is tried again in the next round.
func (c *cluster) control(ctx context.Context) {
	tick := time.NewTicker(controlEvery)
	defer tick.Stop()
	var endpoints string
	var told time.Time
	for {
		var nodes kubeapi.List[kubeapi.Node]
		err := c.admin.Get(ctx, "/api/v1/nodes", &nodes)
		if err == nil {
			// What cannot be done for one node must not keep the others waiting.
			for _, n := range nodes.Items {
				err = errors.Join(err, c.controlNode(ctx, n))
			}
			err = errors.Join(err, c.ownPasswords(ctx, nodes.Items))
			if now := time.Now(); c.Settings.Etcd && now.Sub(told) >= votersEvery {
				told, err = now, errors.Join(err, c.tellVoters(ctx, nodes.Items))
			}
			published, failed := c.publishEndpoints(ctx, nodes.Items, endpoints)
			endpoints, err = published, errors.Join(err, failed)
		}
		if err != nil && ctx.Err() == nil {
			c.log.Debug("controllers", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (c *cluster) controlNode(ctx context.Context, n kubeapi.Node) error {
	if c.Settings.Etcd {
		if err := c.controlMember(ctx, n); err != nil {
			return err
		}
	}
	if c.Settings.CloudController && n.Metadata.DeletionTimestamp == nil && n.Metadata.CreationTimestamp != nil &&
		time.Since(*n.Metadata.CreationTimestamp) > cloudDelay {
		return c.initialise(ctx, n)
	}
	return nil
}

// initialise does the cloud controller's part on a new node.
func (c *cluster) initialise(ctx context.Context, n kubeapi.Node) error {
	i := slices.IndexFunc(n.Spec.Taints, func(t kubeapi.Taint) bool { return t.Key == cloudTaint })
	if i < 0 && n.Spec.ProviderID != "" {
		return nil
	}
	spec := map[string]any{}
	if n.Spec.ProviderID == "" {
		spec["providerID"] = "k3s://" + n.Metadata.Name
	}
	if i >= 0 {
		spec["taints"] = slices.Delete(slices.Clone(n.Spec.Taints), i, i+1)
	}
	return c.patchNode(ctx, n, map[string]any{
		"metadata": map[string]any{"labels": map[string]string{
			"node.kubernetes.io/instance-type": "k3s", "beta.kubernetes.io/instance-type": "k3s",
		}},
		"spec": spec,
	})
}

// controlMember is the etcd member controller: a finalizer on every node, and the removal of a server's member when its
// node is deleted or annotated.
func (c *cluster) controlMember(ctx context.Context, n kubeapi.Node) error {
	meta := n.Metadata
	_, server := meta.Labels[etcdLabel]
	name, removed := meta.Annotations[etcdNodeName], meta.Annotations[etcdRemoved]
	held := slices.Contains(meta.Finalizers, etcdFinalizer)
	switch {
	case meta.DeletionTimestamp != nil && held:
		if server && removed == "" {
			if name == "" {
				return fmt.Errorf("node name annotation for node %s not found", meta.Name)
			}
			if err := c.removeMember(name); err != nil {
				return err
			}
		}
		return c.patchNode(ctx, n, metadata("finalizers", slices.DeleteFunc(slices.Clone(meta.Finalizers), func(f string) bool { return f == etcdFinalizer })))
	case meta.DeletionTimestamp != nil:
		return nil
	case !held:
		return c.patchNode(ctx, n, metadata("finalizers", append(slices.Clone(meta.Finalizers), etcdFinalizer)))
	case !server || name == "":
		return nil
	case removed != "" && removed != name:
		// A new member has come under the node's name.
		return c.patchNode(ctx, n, metadata("annotations", map[string]any{etcdRemove: nil, etcdRemoved: nil}))
	case removed == "" && strings.EqualFold(meta.Annotations[etcdRemove], "true"):
		return c.removeOnRequest(ctx, n)
	}
	return nil
}

// removeOnRequest removes the member of an annotated node. The request for the last member is taken back; one that etcd
// refuses for the moment stays.
func (c *cluster) removeOnRequest(ctx context.Context, n kubeapi.Node) error {
	name := n.Metadata.Annotations[etcdNodeName]
	err := c.removeMember(name)
	var refused *wire.Error
	switch {
	case errors.As(err, &refused) && refused.Code == wire.CodeLast:
		return c.patchNode(ctx, n, metadata("annotations", map[string]any{etcdRemove: nil}))
	case err != nil:
		return err
	}
	return c.patchNode(ctx, n, metadata("annotations", map[string]any{etcdRemoved: name, etcdNodeName: nil, etcdNodeAddress: nil}))
}

func (c *cluster) removeMember(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if refused := c.Membership.remove(name, time.Now()); refused != nil {
		return refused
	}
	return c.save()
}

// ownPasswords makes every node the owner of its password secret and removes the secrets of nodes long gone.
func (c *cluster) ownPasswords(ctx context.Context, nodes []kubeapi.Node) error {
	var secrets kubeapi.List[kubeapi.Secret]
	if err := c.admin.Get(ctx, "/api/v1/namespaces/kube-system/secrets?fieldSelector="+url.QueryEscape("type="+passwordType), &secrets); err != nil {
		return err
	}
	for _, s := range secrets.Items {
		path := "/api/v1/namespaces/kube-system/secrets/" + s.Metadata.Name
		name := strings.TrimSuffix(s.Metadata.Name, passwordSuffix)
		i := slices.IndexFunc(nodes, func(n kubeapi.Node) bool { return n.Metadata.Name == name })
		switch {
		case i < 0 && s.Metadata.CreationTimestamp != nil && time.Since(*s.Metadata.CreationTimestamp) > orphanAfter:
			if err := c.admin.Delete(ctx, path, nil); err != nil && !kubeapi.IsNotFound(err) {
				return err
			}
		case i >= 0 && len(s.Metadata.OwnerReferences) == 0:
			owner := []kubeapi.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: nodes[i].Metadata.UID}}
			if err := c.admin.Patch(ctx, path, kubeapi.MergePatch, metadata("ownerReferences", owner), nil); err != nil && !kubeapi.IsNotFound(err) {
				return err
			}
		}
	}
	return nil
}

// publishEndpoints writes the servers' addresses as the endpoints of the service "kubernetes". It returns what it
// has published, so that an unchanged list costs no call.
func (c *cluster) publishEndpoints(ctx context.Context, nodes []kubeapi.Node, last string) (string, error) {
	var ips []string
	for _, n := range nodes {
		if _, ok := n.Metadata.Labels[controlPlaneLabel]; !ok {
			continue
		}
		for _, a := range n.Status.Addresses {
			if a.Type == "InternalIP" {
				ips = append(ips, a.Address)
				break
			}
		}
	}
	slices.Sort(ips)
	b, err := json.Marshal(ips)
	if err != nil {
		return last, err
	}
	if len(ips) == 0 || string(b) == last {
		return last, nil
	}
	endpoints := make([]map[string]any, len(ips))
	addresses := make([]map[string]any, len(ips))
	for i, ip := range ips {
		endpoints[i] = map[string]any{"addresses": []string{ip}, "conditions": map[string]any{"ready": true}}
		addresses[i] = map[string]any{"ip": ip}
	}
	family := "IPv4"
	if strings.Contains(ips[0], ":") {
		family = "IPv6"
	}
	port := []map[string]any{{"name": "https", "port": 6443, "protocol": "TCP"}}
	const ns, query = "/namespaces/default/", "?fieldManager=k3s&force=true"
	if err := c.admin.Patch(ctx, "/apis/discovery.k8s.io/v1"+ns+"endpointslices/kubernetes"+query, kubeapi.ApplyPatch, map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family, "endpoints": endpoints, "ports": port,
		"metadata": map[string]any{"name": "kubernetes", "labels": map[string]string{"kubernetes.io/service-name": "kubernetes"}},
	}, nil); err != nil {
		return last, err
	}
	err = c.admin.Patch(ctx, "/api/v1"+ns+"endpoints/kubernetes"+query, kubeapi.ApplyPatch, map[string]any{
		"apiVersion": "v1", "kind": "Endpoints", "subsets": []map[string]any{{"addresses": addresses, "ports": port}},
		"metadata": map[string]any{"name": "kubernetes", "labels": map[string]string{"endpointslice.kubernetes.io/skip-mirror": "true"}},
	}, nil)
	if err != nil {
		return last, err
	}
	return string(b), nil
}

// patchNode changes a node if it is still as it was seen; one that has changed is seen again in the next round.
func (c *cluster) patchNode(ctx context.Context, n kubeapi.Node, patch map[string]any) error {
	meta, ok := patch["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		patch["metadata"] = meta
	}
	meta["resourceVersion"] = n.Metadata.ResourceVersion
	err := c.admin.Patch(ctx, "/api/v1/nodes/"+n.Metadata.Name, kubeapi.MergePatch, patch, nil)
	if kubeapi.IsConflict(err) || kubeapi.IsNotFound(err) {
		return nil
	}
	return err
}

func metadata(key string, value any) map[string]any {
	return map[string]any{"metadata": map[string]any{key: value}}
}
