// Package wire is what the lab's control-plane service and the k3s double in a guest say to each other: the bodies of
// the service's HTTP API, a client for it, and the trailer by which a downloaded double knows its version.
//
// Nobody else speaks it. A provider, kubectl or a user in the guest only sees what the double makes of it.
package wire

// Settings are the cluster-wide choices of the first server. They hold for the life of the cluster.
type Settings struct {
	// Etcd says that the first server was started with cluster-init, so that other servers may join.
	Etcd          bool   `json:"etcd"`
	ClusterCIDR   string `json:"clusterCIDR"`
	ServiceCIDR   string `json:"serviceCIDR"`
	NodePortRange string `json:"nodePortRange"`
	// TokenHash is the hex SHA-256 of the server token's secret. It ties the cluster's data to its token, as the
	// real one does by encrypting its bootstrap data with it.
	TokenHash string `json:"tokenHash"`
	// CloudController says that the embedded cloud controller is on.
	CloudController bool `json:"cloudController"`
}

// Server is a k3s server as a member of its cluster.
type Server struct {
	// Member is the etcd member name, NODE-xxxxxxxx; for a cluster without etcd it only has to be constant.
	Member string `json:"member"`
	// Node is the node's name.
	Node string `json:"node"`
	// Address is the node's internal IP address.
	Address string `json:"address"`
	// TokenHash is that of Settings, as this server knows the token.
	TokenHash string `json:"tokenHash"`
}

// CreateRequest asks for a new control plane.
type CreateRequest struct {
	Settings Settings `json:"settings"`
	Server   Server   `json:"server"`
}

// KeyPair is a certificate and its key, both PEM. A pair without a key is a CA that only verifies.
type KeyPair struct {
	Cert string `json:"cert"`
	Key  string `json:"key,omitempty"`
}

// Cluster is all that a server needs to stand in front of a control plane. It is as secret as a real server's data
// directory: it holds the keys of the cluster's CAs.
type Cluster struct {
	ID string `json:"id"`
	// Key authorises calls about this cluster.
	Key string `json:"key"`
	// API is the URL of the native kube-apiserver. It can change when the lab restarts; Beat carries the current one.
	API      string   `json:"api"`
	Settings Settings `json:"settings"`

	ServerCA        KeyPair `json:"serverCA"`
	ClientCA        KeyPair `json:"clientCA"`
	RequestHeaderCA KeyPair `json:"requestHeaderCA"`
	// Proxy is the front-proxy client certificate.
	Proxy KeyPair `json:"proxy"`
}

// Beat answers a heartbeat.
type Beat struct {
	API string `json:"api"`
	// Quorum is false while a majority of the voting members is silent: the datastore does not answer then.
	Quorum bool `json:"quorum"`
	// Learner is true until the member has been promoted to a voter.
	Learner bool `json:"learner"`
	// Removed is true when the member was taken out of the cluster.
	Removed bool `json:"removed"`
}

// Summary describes a cluster to whoever looks after the lab. It holds no secret.
type Summary struct {
	ID      string          `json:"id"`
	State   string          `json:"state"`
	API     string          `json:"api"`
	Etcd    bool            `json:"etcd"`
	Members []MemberSummary `json:"members"`
}

// MemberSummary is a server in a Summary.
type MemberSummary struct {
	Name    string `json:"name"`
	Node    string `json:"node"`
	Address string `json:"address"`
	Learner bool   `json:"learner"`
	Alive   bool   `json:"alive"`
}

// Faults are the failures that the mirror plays on request. The zero value is a healthy mirror.
type Faults struct {
	// InstallStatus is the HTTP status with which /install.sh fails; 0 serves it.
	InstallStatus int `json:"installStatus"`
	// DownloadStatus is the HTTP status with which every release asset fails; 0 serves them.
	DownloadStatus int `json:"downloadStatus"`
	// ReleasesStatus is the HTTP status with which the release list and the channels fail; 0 serves them.
	ReleasesStatus int `json:"releasesStatus"`
	// ChartsStatus is the HTTP status with which the chart repositories and registries fail; 0 serves them.
	ChartsStatus int `json:"chartsStatus"`
	// CorruptDownload changes a byte of every binary, so that its checksum does not match.
	CorruptDownload bool `json:"corruptDownload"`
}

// Error codes of the service, in the body of an Error.
const (
	CodeDuplicate = "DuplicateNode"    // another member has that node's name
	CodeBusy      = "LearnerBusy"      // another learner has not been promoted yet
	CodeRemoved   = "MemberRemoved"    // this member was taken out of the cluster
	CodeNoEtcd    = "NoEtcd"           // the cluster has no embedded etcd
	CodeToken     = "TokenMismatch"    // the cluster was made with another token
	CodeNoQuorum  = "NoQuorum"         // membership cannot change without a quorum
	CodeUnknown   = "UnknownCluster"   // no such cluster, or a wrong key
	CodeFull      = "TooManyClusters"  // as many control planes run as the lab allows
	CodeBad       = "BadRequest"       // the request is malformed
	CodeInternal  = "InternalError"    // anything else
	CodeUnhealthy = "UnhealthyCluster" // too few living members would remain
	CodeLast      = "NotEnoughStarted" // no member would remain
)

// Error is the body of a refused call.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Error implements error.
func (e *Error) Error() string { return e.Message }
