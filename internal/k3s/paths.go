// Package k3s knows k3s from the outside: the order of its versions and the list of its releases, the configuration of
// servers and agents, the script that installs it in a guest, and the forms of its token and kubeconfig.
//
// The package speaks to nobody but the releases API, and knows neither VMs nor Terraform.
package k3s

// Files of a running k3s (https://docs.k3s.io/cli/server, https://docs.k3s.io/cluster-access).
const (
	// ConfigPath holds the flags of a server or agent.
	ConfigPath = "/etc/rancher/k3s/config.yaml"
	// ServerSettingsPath is a drop-in of ConfigPath with what may change on a server that stands; ServerSettings is its text.
	// The directory is not there before somebody makes it.
	ServerSettingsPath = "/etc/rancher/k3s/config.yaml.d/90-cockpit.yaml"
	// ArgsPath is a drop-in of ConfigPath with more arguments; ArgsYAML is its text.
	ArgsPath = "/etc/rancher/k3s/config.yaml.d/60-cockpit-args.yaml"
	// RegistriesPath tells k3s of mirrors and credentials of image registries; CheckRegistries looks at its text. k3s reads
	// it when it starts.
	RegistriesPath = "/etc/rancher/k3s/registries.yaml"
	// KubeconfigPath is the administrator's kubeconfig that a server writes. That it is there does not mean that the API
	// answers.
	KubeconfigPath = "/etc/rancher/k3s/k3s.yaml"
	// TokenPath is the token that nodes join with, in the form ParseToken reads. A server writes it before its API answers.
	TokenPath = "/var/lib/rancher/k3s/server/node-token" //nolint:gosec // a path, not a credential
)

// Files of the bootstrap in the guest.
const (
	// BootstrapPath is where BootstrapScript is to be put; root runs it with /bin/sh, once, without an argument.
	BootstrapPath = "/var/lib/cockpit/bootstrap.sh"
	// BootstrapEnvPath is where the text of BootstrapEnv is to be put.
	BootstrapEnvPath = "/etc/cockpit/bootstrap.env"
	// PreflightPath is where PreflightScript is to be put, which BootstrapPath runs.
	PreflightPath = "/var/lib/cockpit/preflight.sh"
	// MarkerPath tells how far the bootstrap has come; ParseMarker reads it.
	MarkerPath = "/var/lib/cockpit/bootstrap.json"
	// TurnPath is the file whose existence begins the rest of a bootstrap that waits for its turn.
	TurnPath = "/var/lib/cockpit/turn"
	// LogPath is the bootstrap's log. It holds no secret.
	LogPath = "/var/log/cockpit-bootstrap.log"
)

// Role is the k3s sub-command that a node runs.
type Role string

// The roles of a node.
const (
	Server Role = "server"
	Agent  Role = "agent"
)

// The systemd units that the install script makes.
const (
	UnitServer = "k3s"
	UnitAgent  = "k3s-agent"
)

// Unit is the name of the systemd unit that runs a node of this role.
func (r Role) Unit() string {
	if r == Agent {
		return UnitAgent
	}
	return UnitServer
}
