package kubelab

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/wire"
)

// serveControl adds the API of package wire.
func (s *server) serveControl(mux *http.ServeMux) {
	handle := func(pattern string, f func(*http.Request) (any, error)) {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" "+wire.BasePath+path, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
			out, err := f(r)
			s.answer(w, out, err)
		})
	}
	handle("GET /clusters", func(*http.Request) (any, error) { return s.registry.summaries(), nil })
	handle("POST /clusters", func(r *http.Request) (any, error) {
		var req wire.CreateRequest
		if err := decode(r, &req); err != nil {
			return nil, err
		}
		c, err := s.registry.create(req)
		if err != nil {
			return nil, err
		}
		return c.wireCluster(), nil
	})
	onCluster := func(pattern string, f func(*cluster, wire.Server) (any, error)) {
		handle(pattern, func(r *http.Request) (any, error) {
			key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			c, err := s.registry.find(r.PathValue("id"), key)
			if err != nil {
				return nil, err
			}
			var server wire.Server
			if r.Method == http.MethodPost {
				if err := decode(r, &server); err != nil {
					return nil, err
				}
			}
			return f(c, server)
		})
	}
	onCluster("POST /clusters/{id}/attach", func(c *cluster, m wire.Server) (any, error) { return c.attach(m) })
	onCluster("POST /clusters/{id}/beat", func(c *cluster, m wire.Server) (any, error) { return c.beat(m.Member) })
	onCluster("POST /clusters/{id}/leave", func(c *cluster, m wire.Server) (any, error) {
		c.leave(m.Member)
		return struct{}{}, nil
	})
	onCluster("GET /clusters/{id}/members", func(c *cluster, _ wire.Server) (any, error) { return c.members(), nil })

	handle("GET /faults", func(*http.Request) (any, error) { return s.currentFaults(), nil })
	handle("PUT /faults", func(r *http.Request) (any, error) {
		var f wire.Faults
		if err := decode(r, &f); err != nil {
			return nil, err
		}
		s.setFaults(f)
		return f, nil
	})
}

func decode(r *http.Request, into any) error {
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return &wire.Error{Code: wire.CodeBad, Message: "bad request: " + err.Error()}
	}
	return nil
}

func (s *server) answer(w http.ResponseWriter, out any, err error) {
	status := http.StatusOK
	if err != nil {
		var refused *wire.Error
		if !errors.As(err, &refused) {
			s.log.Error("control API", "error", err)
			refused = &wire.Error{Code: wire.CodeInternal, Message: err.Error()}
		}
		out, status = refused, statusOf(refused.Code)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(out); err != nil {
		s.log.Debug("control API: the caller is gone", "error", err)
	}
}

func statusOf(code string) int {
	switch code {
	case wire.CodeUnknown:
		return http.StatusNotFound
	case wire.CodeBad, wire.CodeNoEtcd:
		return http.StatusBadRequest
	case wire.CodeToken:
		return http.StatusForbidden
	case wire.CodeRemoved:
		return http.StatusGone
	case wire.CodeDuplicate, wire.CodeBusy, wire.CodeUnhealthy, wire.CodeLast:
		return http.StatusConflict
	case wire.CodeNoQuorum, wire.CodeFull:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}
