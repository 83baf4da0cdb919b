package kubeapi

import "time"

// Meta is the part of an object's metadata that the lab looks at. Objects are changed by patches only, so that what
// is left out here is never lost.
type Meta struct {
	Name                       string            `json:"name,omitempty"`
	Namespace                  string            `json:"namespace,omitempty"`
	UID                        string            `json:"uid,omitempty"`
	ResourceVersion            string            `json:"resourceVersion,omitempty"`
	Generation                 int64             `json:"generation,omitempty"`
	CreationTimestamp          *time.Time        `json:"creationTimestamp,omitempty"`
	DeletionTimestamp          *time.Time        `json:"deletionTimestamp,omitempty"`
	DeletionGracePeriodSeconds *int64            `json:"deletionGracePeriodSeconds,omitempty"`
	Labels                     map[string]string `json:"labels,omitempty"`
	Annotations                map[string]string `json:"annotations,omitempty"`
	Finalizers                 []string          `json:"finalizers,omitempty"`
	OwnerReferences            []OwnerReference  `json:"ownerReferences,omitempty"`
}

// OwnerReference names an object's owner.
type OwnerReference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Controller *bool  `json:"controller,omitempty"`
}

// List is a list of objects.
type List[T any] struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Items []T `json:"items"`
}

// Taint of a node.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"`
}

// Condition of a node or pod.
type Condition struct {
	Type               string     `json:"type"`
	Status             string     `json:"status"`
	Reason             string     `json:"reason,omitempty"`
	Message            string     `json:"message,omitempty"`
	LastHeartbeatTime  *time.Time `json:"lastHeartbeatTime,omitempty"`
	LastTransitionTime *time.Time `json:"lastTransitionTime,omitempty"`
}

// Address of a node.
type Address struct {
	Type    string `json:"type"`
	Address string `json:"address"`
}

// Node is a Node object.
type Node struct {
	APIVersion string     `json:"apiVersion,omitempty"`
	Kind       string     `json:"kind,omitempty"`
	Metadata   Meta       `json:"metadata"`
	Spec       NodeSpec   `json:"spec"`
	Status     NodeStatus `json:"status"`
}

// NodeSpec is a Node's spec.
type NodeSpec struct {
	PodCIDR       string  `json:"podCIDR,omitempty"`
	ProviderID    string  `json:"providerID,omitempty"`
	Unschedulable bool    `json:"unschedulable,omitempty"`
	Taints        []Taint `json:"taints,omitempty"`
}

// NodeStatus is a Node's status.
type NodeStatus struct {
	Capacity        map[string]string `json:"capacity,omitempty"`
	Allocatable     map[string]string `json:"allocatable,omitempty"`
	Conditions      []Condition       `json:"conditions,omitempty"`
	Addresses       []Address         `json:"addresses,omitempty"`
	DaemonEndpoints *DaemonEndpoints  `json:"daemonEndpoints,omitempty"`
	NodeInfo        *NodeInfo         `json:"nodeInfo,omitempty"`
}

// DaemonEndpoints tells where the kubelet listens.
type DaemonEndpoints struct {
	KubeletEndpoint struct {
		Port int `json:"Port"`
	} `json:"kubeletEndpoint"`
}

// NodeInfo is what a node says of itself.
type NodeInfo struct {
	MachineID               string `json:"machineID"`
	SystemUUID              string `json:"systemUUID"`
	BootID                  string `json:"bootID"`
	KernelVersion           string `json:"kernelVersion"`
	OSImage                 string `json:"osImage"`
	ContainerRuntimeVersion string `json:"containerRuntimeVersion"`
	KubeletVersion          string `json:"kubeletVersion"`
	KubeProxyVersion        string `json:"kubeProxyVersion"`
	OperatingSystem         string `json:"operatingSystem"`
	Architecture            string `json:"architecture"`
}

// Pod is a Pod object.
type Pod struct {
	Metadata Meta      `json:"metadata"`
	Spec     PodSpec   `json:"spec"`
	Status   PodStatus `json:"status"`
}

// PodSpec is the part of a pod's spec that matters to a kubelet that runs nothing.
type PodSpec struct {
	NodeName       string      `json:"nodeName"`
	HostNetwork    bool        `json:"hostNetwork"`
	RestartPolicy  string      `json:"restartPolicy"`
	InitContainers []Container `json:"initContainers"`
	Containers     []Container `json:"containers"`
	Volumes        []Volume    `json:"volumes"`
}

// Container of a pod.
type Container struct {
	Name  string `json:"name"`
	Image string `json:"image"`
}

// Volume of a pod.
type Volume struct {
	HostPath *struct {
		Path string `json:"path"`
	} `json:"hostPath"`
}

// PodStatus is the part of a pod's status that is read back.
type PodStatus struct {
	Phase                 string            `json:"phase"`
	PodIP                 string            `json:"podIP"`
	Conditions            []Condition       `json:"conditions"`
	InitContainerStatuses []ContainerStatus `json:"initContainerStatuses"`
	ContainerStatuses     []ContainerStatus `json:"containerStatuses"`
}

// ContainerStatus tells what a container waits for.
type ContainerStatus struct {
	Name  string         `json:"name"`
	State ContainerState `json:"state"`
}

// ContainerState is the state of a container as far as it waits.
type ContainerState struct {
	Waiting *Waiting `json:"waiting"`
}

// Waiting tells why a container waits.
type Waiting struct {
	Reason string `json:"reason"`
}

// Secret is a Secret object.
type Secret struct {
	APIVersion string            `json:"apiVersion,omitempty"`
	Kind       string            `json:"kind,omitempty"`
	Metadata   Meta              `json:"metadata"`
	Type       string            `json:"type,omitempty"`
	Immutable  bool              `json:"immutable,omitempty"`
	Data       map[string][]byte `json:"data,omitempty"`
}

// Lease is a node's Lease object.
type Lease struct {
	APIVersion string    `json:"apiVersion,omitempty"`
	Kind       string    `json:"kind,omitempty"`
	Metadata   Meta      `json:"metadata"`
	Spec       LeaseSpec `json:"spec"`
}

// LeaseSpec is a Lease's spec.
type LeaseSpec struct {
	HolderIdentity       string `json:"holderIdentity"`
	LeaseDurationSeconds int    `json:"leaseDurationSeconds"`
	// RenewTime is in the API's MicroTime form.
	RenewTime string `json:"renewTime"`
}

// MicroTime formats a time as the API's MicroTime.
func MicroTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z07:00") }

// Now returns the current time with the resolution of the API's timestamps.
func Now() *time.Time {
	t := time.Now().UTC().Truncate(time.Second)
	return &t
}
