package hypervisor

import "testing"

func TestDialURI(t *testing.T) {
	for uri, want := range map[string]string{
		"qemu:///system":                                     "qemu:///system",
		"qemu+ssh://root@hv-a.example/system":                "qemu+ssh://root@hv-a.example/system?no_tty=1",
		"qemu+ssh://hv-a/system?keyfile=/k&no_tty=0":         "qemu+ssh://hv-a/system?keyfile=%2Fk&no_tty=1",
		"qemu+tls://hv-a/system":                             "qemu+tls://hv-a/system",
		"qemu+libssh2://hv-a/system?keyfile=/k":              "qemu+libssh2://hv-a/system?keyfile=/k",
		"qemu+unix:///system?socket=/run/a/libvirt-sock":     "qemu+unix:///system?socket=/run/a/libvirt-sock",
		"qemu+ssh://[2001:db8::1]:2222/system?sshauth=agent": "qemu+ssh://[2001:db8::1]:2222/system?no_tty=1&sshauth=agent",
		"test:///default":                                    "test:///default",
		"":                                                   "",
		"%":                                                  "%",
	} {
		if got := dialURI(uri); got != want {
			t.Errorf("%q: got %q, want %q", uri, got, want)
		}
	}
}

func TestPublicURI(t *testing.T) {
	for uri, want := range map[string]string{
		"qemu:///system": "qemu:///system",
		"qemu+ssh://root:hunter2@hv-a.example:2222/system?keyfile=/home/u/.ssh/id#f": "qemu+ssh://hv-a.example:2222/system",
		"qemu+unix:///system?socket=/run/a/libvirt-sock":                             "qemu+unix:///system",
		"%": "the configured URI",
	} {
		if got := publicURI(uri); got != want {
			t.Errorf("%q: got %q, want %q", uri, got, want)
		}
	}
}

func TestRedact(t *testing.T) {
	const uri = "qemu+ssh://deploy:hunter2@hv-a.example/system?keyfile=/home/deploy/.ssh/id_hv&no_tty=1"
	for text, want := range map[string]string{
		"Cannot recv data: deploy@hv-a.example: Permission denied (publickey)": "Cannot recv data: hv-a.example: Permission denied (publickey)",
		"cannot open " + uri: "cannot open qemu+ssh://hv-a.example/system",
		"identity file /home/deploy/.ssh/id_hv not accessible": "identity file … not accessible",
		"hunter2 refused":    "… refused",
		"Connection refused": "Connection refused",
	} {
		if got := redact(text, uri); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
