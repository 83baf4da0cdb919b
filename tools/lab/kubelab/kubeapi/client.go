// Package kubeapi is a Kubernetes client of a few hundred lines: plain REST and JSON, with just the fields that the
// lab's parts look at. client-go would make the guest's program several times as large and slower to start.
package kubeapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Patch types.
const (
	MergePatch     = "application/merge-patch+json"
	StrategicPatch = "application/strategic-merge-patch+json"
	ApplyPatch     = "application/apply-patch+yaml"
	JSONPatch      = "application/json-patch+json"
)

const callTimeout = 30 * time.Second

// Client calls an API server.
type Client struct {
	// Base returns the server's URL without a path; it may change over time.
	Base func() string
	// HTTP is the client to use; it carries the identity.
	HTTP *http.Client
}

// StatusError is an answer of the API server that is no success.
type StatusError struct {
	Code    int    `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Error implements error.
func (e *StatusError) Error() string { return fmt.Sprintf("%s (%d)", e.Message, e.Code) }

// IsCode reports whether an error is an answer with that HTTP status.
func IsCode(err error, code int) bool {
	var s *StatusError
	return errors.As(err, &s) && s.Code == code
}

// IsNotFound reports whether an error says that there is no such object.
func IsNotFound(err error) bool { return IsCode(err, http.StatusNotFound) }

// IsConflict reports whether an error says that the object exists or has changed.
func IsConflict(err error) bool { return IsCode(err, http.StatusConflict) }

// Get reads an object or list.
func (c *Client) Get(ctx context.Context, path string, out any) error {
	return c.call(ctx, http.MethodGet, path, "", nil, out)
}

// Create posts an object.
func (c *Client) Create(ctx context.Context, path string, in, out any) error {
	return c.call(ctx, http.MethodPost, path, "application/json", in, out)
}

// Put replaces an object.
func (c *Client) Put(ctx context.Context, path string, in, out any) error {
	return c.call(ctx, http.MethodPut, path, "application/json", in, out)
}

// Patch changes an object; kind is one of the patch types.
func (c *Client) Patch(ctx context.Context, path, kind string, in, out any) error {
	return c.call(ctx, http.MethodPatch, path, kind, in, out)
}

// Delete removes an object; options may be nil.
func (c *Client) Delete(ctx context.Context, path string, options any) error {
	return c.call(ctx, http.MethodDelete, path, "application/json", options, nil)
}

// Raw reads a path and returns its body, whatever that is.
func (c *Client) Raw(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := c.do(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

func (c *Client) call(ctx context.Context, method, path, contentType string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := c.do(ctx, method, path, contentType, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("decoding the answer to %s %s: %w", method, path, err)
	}
	return nil
}

// do sends a request; in may be bytes that are sent as they are.
func (c *Client) do(ctx context.Context, method, path, contentType string, in any) (*http.Response, error) {
	var body io.Reader
	switch v := in.(type) {
	case nil:
	case []byte:
		body = bytes.NewReader(v)
	default:
		b, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("encoding the body of %s %s: %w", method, path, err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.Base()+path, body)
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %s: %w", method, path, resp.Status, err)
	}
	s := &StatusError{}
	if json.Unmarshal(b, s) != nil || s.Message == "" {
		s.Message = fmt.Sprintf("%s %s: %s", method, path, bytes.TrimSpace(b))
	}
	s.Code = resp.StatusCode
	return nil, s
}

// Event is one change that a watch reports. The object's type is the caller's choice.
type Event[T any] struct {
	Type   string `json:"type"`
	Object T      `json:"object"`
}

// Watch follows a watch path (which holds its own query) and calls f for each event until the stream ends, which is
// an io.EOF, or f or ctx stops it. An ERROR event ends it with that error.
func Watch[T any](ctx context.Context, c *Client, path string, f func(Event[T]) error) error {
	resp, err := c.do(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	dec := json.NewDecoder(bufio.NewReader(resp.Body))
	for {
		var raw Event[json.RawMessage]
		if err := dec.Decode(&raw); err != nil {
			return err
		}
		if raw.Type == "ERROR" {
			s := &StatusError{}
			if err := json.Unmarshal(raw.Object, s); err != nil {
				return fmt.Errorf("decoding a watch's error: %w", err)
			}
			return s
		}
		ev := Event[T]{Type: raw.Type}
		if err := json.Unmarshal(raw.Object, &ev.Object); err != nil {
			return fmt.Errorf("decoding a watch's event: %w", err)
		}
		if err := f(ev); err != nil {
			return err
		}
	}
}
