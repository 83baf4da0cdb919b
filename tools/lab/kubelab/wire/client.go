package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// BasePath is where the service's API starts.
const BasePath = "/double/v1"

const callTimeout = 15 * time.Second

// Client calls the control-plane service.
type Client struct {
	// Base is the service's URL without a path.
	Base string
	// HTTP is the client to use.
	HTTP *http.Client
}

// NewClient returns a client of the service at a base URL such as http://10.77.0.1:80. The lab's LAN needs no proxy.
func NewClient(base string) *Client {
	return &Client{Base: base, HTTP: &http.Client{Transport: &http.Transport{IdleConnTimeout: time.Minute}}}
}

// Create makes a control plane and the caller its first member.
func (c *Client) Create(ctx context.Context, r CreateRequest) (Cluster, error) {
	var out Cluster
	return out, c.call(ctx, http.MethodPost, "/clusters", "", r, &out)
}

// Attach says that a member is starting; one that is not in the member list yet joins it, as a learner. The control
// plane is started if it was at rest. A refusal is an *Error.
func (c *Client) Attach(ctx context.Context, id, key string, s Server) (Cluster, error) {
	var out Cluster
	return out, c.call(ctx, http.MethodPost, "/clusters/"+id+"/attach", key, s, &out)
}

// Beat is a sign of life.
func (c *Client) Beat(ctx context.Context, id, key, member string) (Beat, error) {
	var out Beat
	return out, c.call(ctx, http.MethodPost, "/clusters/"+id+"/beat", key, Server{Member: member}, &out)
}

// Leave says that a member is stopping. It stays a member.
func (c *Client) Leave(ctx context.Context, id, key, member string) error {
	return c.call(ctx, http.MethodPost, "/clusters/"+id+"/leave", key, Server{Member: member}, nil)
}

// Members lists the members of a cluster.
func (c *Client) Members(ctx context.Context, id, key string) ([]MemberSummary, error) {
	var out []MemberSummary
	return out, c.call(ctx, http.MethodGet, "/clusters/"+id+"/members", key, nil, &out)
}

// Clusters lists all clusters.
func (c *Client) Clusters(ctx context.Context) ([]Summary, error) {
	var out []Summary
	return out, c.call(ctx, http.MethodGet, "/clusters", "", nil, &out)
}

// SetFaults replaces the failures that the mirror plays.
func (c *Client) SetFaults(ctx context.Context, f Faults) error {
	return c.call(ctx, http.MethodPut, "/faults", "", f, nil)
}

func (c *Client) call(ctx context.Context, method, path, key string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.Base+BasePath+path, body)
	if err != nil {
		return err
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		e := &Error{Code: CodeInternal, Message: resp.Status}
		if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(e); err != nil {
			return fmt.Errorf("%s %s: %s", method, path, resp.Status)
		}
		return e
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(out)
}
