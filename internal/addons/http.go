package addons

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Limits of what a repository may send. Helm unpacks 100 MiB at most; the largest index of the projects here has some 5 MiB.
const (
	maxArchive = 32 << 20
	maxIndex   = 64 << 20
)

const (
	// attempts is how often a repository is asked that does not answer or fails by itself.
	attempts = 3
	// firstPause is how long it is left alone after its first failure; each further pause is twice as long.
	firstPause = time.Second
	// attemptTimeout bounds one attempt, headerTimeout how long it may be silent at first.
	attemptTimeout = 2 * time.Minute
	headerTimeout  = 20 * time.Second
)

// errUnreachable is why a repository could not be asked.
var errUnreachable = errors.New("it cannot be reached")

// transport adds to requests to the mirror what was meant for it, and to no others.
type transport struct {
	mirror  *url.URL
	options Options
	// login: a name and a password are added too.
	login bool
	// trusted trusts the mirror's own CA too, plain only those of the system.
	trusted, plain http.RoundTripper
}

func newTransport(o Options, login bool) http.RoundTripper {
	dialer := &net.Dialer{Timeout: headerTimeout}
	plain := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: headerTimeout, ResponseHeaderTimeout: headerTimeout, IdleConnTimeout: time.Minute,
	}
	t := &transport{options: o, login: login, trusted: plain, plain: plain}
	if mirror, err := url.Parse(o.Repository); err == nil && o.Repository != "" {
		t.mirror = mirror
	}
	if len(o.CA) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		pool.AppendCertsFromPEM(o.CA)
		trusted := plain.Clone()
		trusted.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
		t.trusted = trusted
	}
	return t
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !t.isMirror(r.URL) {
		return t.plain.RoundTrip(r)
	}
	if t.login && t.options.Username != "" {
		r = r.Clone(r.Context())
		r.SetBasicAuth(t.options.Username, t.options.Password)
	}
	return t.trusted.RoundTrip(r)
}

// isMirror reports whether a URL is one of the mirror's host. What was meant for https:// is not sent in the clear.
func (t *transport) isMirror(u *url.URL) bool {
	if t.mirror == nil || u.Host != t.mirror.Host {
		return false
	}
	return u.Scheme == t.mirror.Scheme || u.Scheme == "https" || t.mirror.Scheme+"://" == ociScheme && plainRegistry(u.Host)
}

// statusError is an answer with another status than 200.
type statusError int

// Error names the status.
func (e statusError) Error() string {
	return fmt.Sprintf("it answers %d %s", int(e), http.StatusText(int(e)))
}

// download gets what is at a URL. A server that does not answer or fails by itself is asked again.
func (c *charts) download(ctx context.Context, address string, limit int64) ([]byte, error) {
	var data []byte
	err := c.again(ctx, func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return err
		}
		r.Header.Set("User-Agent", userAgent)
		answer, err := c.web.Do(r)
		if err != nil {
			return fmt.Errorf("%w: %w", errUnreachable, withoutURL(err))
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return statusError(answer.StatusCode)
		}
		data, err = io.ReadAll(io.LimitReader(answer.Body, limit+1))
		switch {
		case err != nil:
			return fmt.Errorf("%w to its end: %w", errUnreachable, err)
		case int64(len(data)) > limit:
			return fmt.Errorf("what it sends is larger than %d MiB", limit>>20)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return data, nil
}

// again does a thing, and once more after a pause where it failed for a reason that may pass.
func (c *charts) again(ctx context.Context, do func(context.Context) error) error {
	for n, wait := 1, c.pause; ; n, wait = n+1, 2*wait {
		actx, cancel := context.WithTimeout(ctx, attemptTimeout)
		err := do(actx)
		cancel()
		if err == nil || n == attempts || !mayPass(err) || ctx.Err() != nil {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// mayPass reports whether asking again may help.
func mayPass(err error) bool {
	var status statusError
	if errors.As(err, &status) {
		return status >= 500 || status == http.StatusTooManyRequests
	}
	var cert *tls.CertificateVerificationError
	return errors.Is(err, errUnreachable) && !errors.As(err, &cert)
}

// withoutURL leaves out the URL, which the message has already.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// redacted is a URL without what is secret in it.
func redacted(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return address
	}
	u.RawQuery = ""
	return u.Redacted()
}

// checkDigest compares data with the SHA-256 that a repository promised, "" for none.
func checkDigest(data []byte, want string) error {
	sum := sha256.Sum256(data)
	if got := hex.EncodeToString(sum[:]); want != "" && got != want {
		return fmt.Errorf("its archive has the SHA-256 %s, and not %s, which the repository promises", got, want)
	}
	return nil
}
