package addons

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// realAPI returns the kubeconfig of a real API server: the one that COCKPIT_TEST_KUBECONFIG names, or one that is started on
// loopback with the program that LAB_CONTROLPLANE names (see tools/controlplane).
func realAPI(t *testing.T) []byte {
	t.Helper()
	if file := os.Getenv("COCKPIT_TEST_KUBECONFIG"); file != "" {
		kubeconfig, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return kubeconfig
	}
	program := os.Getenv("LAB_CONTROLPLANE")
	if program == "" {
		t.Skip("neither does COCKPIT_TEST_KUBECONFIG name a kubeconfig, nor LAB_CONTROLPLANE the program of tools/controlplane: no real API server")
	}
	return startControlPlane(t, program)
}

// startControlPlane runs etcd, an API server and the controllers on loopback until the test ends.
func startControlPlane(t *testing.T, program string) []byte {
	t.Helper()
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	started := false
	run := func(args ...string) {
		ctx, cancel := context.WithCancel(context.Background())
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = 5 * time.Second
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // A test that runs out of time cleans up nothing.
		log, err := os.Create(filepath.Join(dir, args[0]+".log"))
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cancel()
			_ = cmd.Wait()
			log.Close()
			if !started {
				text, _ := os.ReadFile(log.Name())
				t.Logf("the last of %s:\n%s", args[0], text[max(0, len(text)-2000):])
			}
		})
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	service := file("service.key", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})))
	etcd, peer, api, controller := freePort(t), freePort(t), freePort(t), freePort(t)
	etcdURL, peerURL := "http://"+etcd, "http://"+peer
	run("etcd", "--name=test", "--data-dir="+filepath.Join(dir, "etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+etcdURL, "--advertise-client-urls="+etcdURL,
		"--listen-peer-urls="+peerURL, "--initial-advertise-peer-urls="+peerURL, "--initial-cluster=test="+peerURL)
	certs := filepath.Join(dir, "certs")
	_, port, _ := net.SplitHostPort(api)
	run("kube-apiserver", "--etcd-servers="+etcdURL, "--bind-address=127.0.0.1", "--secure-port="+port, "--cert-dir="+certs,
		"--token-auth-file="+file("tokens.csv", "secret,admin,admin,system:masters\n"), "--authorization-mode=RBAC",
		"--service-account-key-file="+service, "--service-account-signing-key-file="+service, "--service-account-issuer=https://test",
		"--service-cluster-ip-range=10.43.0.0/16", "--endpoint-reconciler-type=none", "--allow-privileged=true",
		"--disable-admission-plugins=ServiceAccount")
	ca := awaitFile(t, filepath.Join(certs, "apiserver.crt"))
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://" + api, CertificateAuthorityData: ca}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "secret"}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	kubeconfig, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	k, err := open(kubeconfig, newCharts(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the API", func() error {
		return k.typed.Discovery().RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error()
	})
	_, port, _ = net.SplitHostPort(controller)
	run("kube-controller-manager", "--kubeconfig="+file("controller.kubeconfig", string(kubeconfig)), "--leader-elect=false",
		"--bind-address=127.0.0.1", "--secure-port="+port, "--service-account-private-key-file="+service)
	started = true
	return kubeconfig
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func awaitFile(t *testing.T, path string) (content []byte) {
	t.Helper()
	eventually(t, path, func() (err error) {
		content, err = os.ReadFile(path)
		if err == nil && len(content) == 0 {
			err = fmt.Errorf("%s is empty", path)
		}
		return err
	})
	return content
}

// eventually waits for something that the control plane does by itself.
func eventually(t *testing.T, what string, ask func() error) {
	t.Helper()
	end := time.Now().Add(time.Minute)
	for {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}
