package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// served is a client of an API on this machine that has one pod and two budgets over it, and answers to evictions as told.
func served(t *testing.T, evict http.HandlerFunc) *Client {
	t.Helper()
	answer := func(v any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(v)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/pods", answer(corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{*pod("db")}}))
	mux.HandleFunc("GET /apis/policy/v1/poddisruptionbudgets", answer(policyv1.PodDisruptionBudgetList{
		TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudgetList"},
		Items:    []policyv1.PodDisruptionBudget{*budget("b", "db", 1), *budget("a", "", 1)},
	}))
	mux.HandleFunc("POST /api/v1/namespaces/default/pods/db/eviction", evict)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s", r.Method, r.URL)
		w.WriteHeader(http.StatusNotFound)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	c, err := New(fmt.Appendf(nil, `{"clusters":[{"name":"x","cluster":{"server":%q}}],"contexts":[{"name":"x","context":{"cluster":"x"}}],"current-context":"x"}`, server.URL))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The API's answer to a pod with two budgets is an internal error without a reason, which client-go rewrites.
func TestDrainOverHTTP(t *testing.T) {
	var asked policyv1.Eviction
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: severalBudgets,
		})
	})
	err := c.Drain(t.Context(), "w-1", patient)
	if u := new(cluster.Undrained); !errors.As(err, &u) || !strings.Contains(err.Error(), "has more than one PodDisruptionBudget, with which Kubernetes evicts no pod: a, b") {
		t.Errorf("got %v", err)
	}
	if o := asked.DeleteOptions; o == nil || o.GracePeriodSeconds != nil || o.Preconditions == nil || *o.Preconditions.UID != "db-1" {
		t.Errorf("asked for %+v", asked)
	}
}

// An API that does not answer holds nothing up.
func TestDrainOverHTTPEndsWithContext(t *testing.T) {
	errStop := errors.New("the user has had enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	c := served(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel(errStop)
		_, _ = io.Copy(io.Discard, r.Body) // The server sees that its client has gone only once it has read all.
		<-r.Context().Done()
	})
	if err := c.Drain(ctx, "w-1", patient); !errors.Is(err, errStop) {
		t.Errorf("got %v", err)
	}
}

// When to come again is for Drain to say, and so is what the API said.
func TestEvictionIsNotRepeatedOutOfSight(t *testing.T) {
	asked := 0
	c := served(t, func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		_ = json.NewEncoder(w).Encode(noRoom(1).ErrStatus)
	})
	if answers := c.evict(t.Context(), []corev1.Pod{*pod("db")}, nil); !apierrors.HasStatusCause(answers[0], policyv1.DisruptionBudgetCause) || asked != 1 {
		t.Errorf("asked %d times: %v", asked, answers)
	}
}
