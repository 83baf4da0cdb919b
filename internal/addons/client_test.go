package addons

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Helm's requests know no context; they end with that of the operation all the same, and with its cause.
func TestBoundRequestsEndWithTheirOperation(t *testing.T) {
	arrived := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancelCause(t.Context())
	api, err := kubernetes.NewForConfig(bound(ctx, &rest.Config{Host: server.URL}))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-arrived
		cancel(errLost)
	}()
	if _, err := api.CoreV1().Secrets("x").List(context.WithoutCancel(t.Context()), metav1.ListOptions{}); !errors.Is(err, context.Canceled) && !errors.Is(err, errLost) {
		t.Errorf("got %v", err)
	}
}

// An answer that was begun ends with the operation, too, and not before it was read.
func TestBoundAnswers(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("begun"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	client := http.Client{Transport: &binding{ctx: ctx, next: http.DefaultTransport}}
	answer, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text := make([]byte, 5)
	if _, err := answer.Body.Read(text); err != nil || string(text) != "begun" {
		t.Errorf("read %q, %v", text, err)
	}
	cancel()
	if _, err := answer.Body.Read(text); err == nil {
		t.Error("it can be read on")
	}
}

// What became of a release can still be written down when its operation was ended, but not for ever.
func TestOutliving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		late, end := outliving(ctx, time.Minute)
		defer end()
		began := time.Now()
		cancel()
		<-late.Done()
		if lived := time.Since(began); lived != time.Minute {
			t.Errorf("it outlived the other by %s", lived)
		}
		soon, end := outliving(ctx, time.Minute)
		end()
		<-soon.Done()
	})
}

func TestOpenRefusesWhatIsNoKubeconfig(t *testing.T) {
	for _, text := range []string{"", "canary", "apiVersion: v1\nkind: Config\ntoken: canary\n"} {
		if _, err := New(Options{}).Open([]byte(text)); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
