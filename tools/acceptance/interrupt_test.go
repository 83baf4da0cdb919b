package acceptance

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// killed runs Terraform and kills it, and the provider with it, as soon as it sees something.
func (c *cli) killed(seen func() bool, args ...string) {
	c.t.Helper()
	cmd := c.command(args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // The provider is in the same group.
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	struck := make(chan error, 1)
	go func() {
		struck <- when(ctx, seen, func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	}()
	err := cmd.Wait()
	cancel()
	if missed := <-struck; missed != nil {
		c.t.Fatalf("terraform %s ended before it was killed: %v, %v\n%s", strings.Join(args, " "), missed, err, out.String())
	}
}

// stall keeps the API from creating objects of a kind in a namespace: it asks a webhook about them, which never answers. The
// functions that it returns tell whether it was asked, and end that.
func (s *subject) stall(t *testing.T, namespace, group, kind string) (asked func() bool, end func()) {
	t.Helper()
	at, err := url.Parse(s.l.MirrorURL)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(at.Hostname(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	var came atomic.Bool
	var open sync.Map
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			open.Store(client, nil)
			came.Store(true)
		}
	}()
	address, policy, effects, limit := fmt.Sprintf("https://%s/", listener.Addr()), admissionv1.Fail, admissionv1.SideEffectClassNone, int32(30)
	hook := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "stall"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "stall.example.com", ClientConfig: admissionv1.WebhookClientConfig{URL: &address},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{kind}},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
			FailurePolicy:     &policy, SideEffects: &effects, TimeoutSeconds: &limit, AdmissionReviewVersions: []string{"v1"},
		}},
	}
	hooks := s.api.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if _, err := hooks.Create(t.Context(), hook, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		if err := hooks.Delete(context.Background(), hook.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		_ = listener.Close()
		open.Range(func(client, _ any) bool { _ = client.(net.Conn).Close(); return true })
	})
	t.Cleanup(end)
	return came.Load, end
}
