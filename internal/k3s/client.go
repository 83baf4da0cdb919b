package k3s

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// DefaultReleasesURL lists the releases of k3s
// (https://docs.github.com/en/rest/releases/releases#list-releases).
const DefaultReleasesURL = "https://api.github.com/repos/k3s-io/k3s/releases"

const (
	// listTimeout bounds a whole List: a plan is not to hang for a list that can be done without.
	listTimeout = 15 * time.Second
	// maxPages bounds what is read, newest releases first: five pages of 100 go back about three years.
	maxPages = 5
	// maxPageBytes bounds one page. 100 releases with all their assets and notes take about 5 MB.
	maxPageBytes = 64 << 20
)

// Token is a secret that GitHub grants more requests for.
type Token struct {
	Secret string
	// Origin says where the user set it, as in "the environment variable GITHUB_TOKEN".
	Origin string
}

// Client asks GitHub, or a mirror with the same API, for the releases of k3s. It is safe for concurrent use.
type Client struct {
	url     *url.URL
	token   Token
	http    *retryablehttp.Client
	timeout time.Duration

	// turn lets one List at a time in; the first answer serves the others.
	turn  chan struct{}
	known *ReleaseList
}

// NewClient makes a client for the releases at a URL, DefaultReleasesURL where it is empty. The token, which may be zero,
// is sent to the host of that URL only, and not without TLS. NewClient does no I/O.
func NewClient(releasesURL string, token Token) (*Client, error) {
	if releasesURL == "" {
		releasesURL = DefaultReleasesURL
	}
	u, err := url.Parse(releasesURL)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return nil, errors.New("the URL of the k3s releases is not an http or https URL")
	}
	if token.Secret != "" && u.Scheme != "https" {
		return nil, errors.New("the token would be sent unencrypted to the http URL of the k3s releases; use https, or no token")
	}
	q := u.Query()
	q.Set("per_page", "100")
	u.RawQuery = q.Encode()

	c := retryablehttp.NewClient()
	c.Logger = nil
	c.RetryMax = 2
	c.RetryWaitMin, c.RetryWaitMax = 200*time.Millisecond, time.Second
	c.CheckRetry = retry
	c.Backoff = func(low, high time.Duration, attempt int, _ *http.Response) time.Duration {
		return retryablehttp.DefaultBackoff(low, high, attempt, nil) // without the response's Retry-After
	}
	c.ErrorHandler = retryablehttp.PassthroughErrorHandler
	c.HTTPClient.CheckRedirect = redirect
	return &Client{url: u, token: token, http: c, timeout: listTimeout, turn: make(chan struct{}, 1)}, nil
}

// redirect follows an answer to another place, where the token stays behind unless that is the same server.
func redirect(req *http.Request, via []*http.Request) error {
	const most = 5
	if len(via) > most {
		return fmt.Errorf("it redirects more than %d times", most)
	}
	if first := via[0].URL; req.URL.Scheme != first.Scheme || req.URL.Host != first.Host {
		req.Header.Del("Authorization")
	}
	return nil
}

// retry asks again after failures that may pass within seconds. A rate limit does not.
func retry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if err == nil && resp.StatusCode < http.StatusInternalServerError {
		return false, nil
	}
	return retryablehttp.DefaultRetryPolicy(ctx, resp, err)
}

// List returns the releases, within 15 seconds. Where the API does not answer as it should, the list is the embedded
// one or partial, and says why; only the end of ctx is an error. The first list is kept for the life of the client.
func (c *Client) List(ctx context.Context) (ReleaseList, error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return ReleaseList{}, fmt.Errorf("list k3s releases: %w", ctx.Err())
	}
	if c.known == nil {
		list, err := c.fetch(ctx)
		if ctx.Err() != nil {
			return ReleaseList{}, fmt.Errorf("list k3s releases: %w", ctx.Err())
		}
		if err != nil {
			return ReleaseList{}, err
		}
		c.known = &list
	}
	list := *c.known
	list.Versions = slices.Clone(list.Versions)
	return list, nil
}

// fetch reads page after page.
func (c *Client) fetch(ctx context.Context) (ReleaseList, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	list := ReleaseList{Source: SourceGitHub}
	next := c.url
	for page := 1; next != nil && page <= maxPages; page++ {
		var versions []Version
		var err error
		versions, next, err = c.page(ctx, next)
		list.Versions = append(list.Versions, versions...)
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%s did not answer within %s", c.url.Host, c.timeout)
		}
		if err != nil {
			list.Partial, list.Reason = true, err.Error()
			break
		}
	}
	if len(list.Versions) == 0 {
		return embedded(cmp.Or(list.Reason, c.url.Host+" lists no release of k3s"))
	}
	newestFirst(list.Versions)
	// A release published between two pages moves the last one of the first page onto the second.
	list.Versions = slices.Compact(list.Versions)
	return list, nil
}

// page reads one page, and returns where the next one is; nil after the last. Versions beside an error are good ones.
func (c *Client) page(ctx context.Context, u *url.URL) ([]Version, *url.URL, error) {
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, nil, errors.New("the URL of the k3s releases cannot be asked")
	}
	req.Header.Set("Accept", "application/vnd.github+json")
	req.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	req.Header.Set("User-Agent", "terraform-provider-cockpit")
	if c.token.Secret != "" {
		req.Header.Set("Authorization", "Bearer "+c.token.Secret)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if resp != nil {
			resp.Body.Close()
		}
		return nil, nil, fmt.Errorf("ask for the releases: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, nil, c.refusal(resp)
	}
	versions, err := decodeReleases(io.LimitReader(resp.Body, maxPageBytes))
	if err != nil {
		return nil, nil, fmt.Errorf("%s did not answer with a list of releases: %w", u.Host, err)
	}
	next, err := c.next(u, resp.Header)
	return versions, next, err
}

// refusal says in a sentence what an answer other than 200 means.
func (c *Client) refusal(resp *http.Response) error {
	host := c.url.Host
	limited := resp.StatusCode == http.StatusTooManyRequests ||
		resp.StatusCode == http.StatusForbidden && resp.Header.Get("X-Ratelimit-Remaining") == "0"
	switch {
	case resp.StatusCode == http.StatusUnauthorized && c.token.Secret != "":
		return fmt.Errorf("%s refuses the token of %s (%s): it is wrong, revoked or expired", host, c.token.Origin, resp.Status)
	case limited:
		text := "the rate limit of " + host + " is used up"
		if s, err := strconv.ParseInt(resp.Header.Get("X-Ratelimit-Reset"), 10, 64); err == nil {
			text += " until " + time.Unix(s, 0).UTC().Format(time.RFC3339)
		}
		if c.token.Secret == "" {
			text += "; with a token it is higher"
		}
		return errors.New(text)
	}
	return fmt.Errorf("%s answered %s", host, resp.Status)
}

// decodeReleases reads the API's answer, without drafts and without tags that are no release of k3s.
func decodeReleases(body io.Reader) ([]Version, error) {
	var answer []struct {
		TagName string `json:"tag_name"`
		Draft   bool   `json:"draft"`
	}
	if err := json.NewDecoder(body).Decode(&answer); err != nil {
		return nil, err
	}
	var out []Version
	for _, a := range answer {
		if v, err := ParseVersion(a.TagName); err == nil && !a.Draft {
			out = append(out, v)
		}
	}
	return out, nil
}

// nextLink finds the link to the next page in a Link header (RFC 8288).
var nextLink = regexp.MustCompile(`<([^>]*)>[^<]*;\s*rel="?next\b`)

// next is the page after u. A link to another server is not followed: it would be shown the token.
func (c *Client) next(u *url.URL, h http.Header) (*url.URL, error) {
	m := nextLink.FindStringSubmatch(strings.Join(h.Values("Link"), ","))
	if m == nil {
		return nil, nil
	}
	next, err := u.Parse(m[1])
	if err != nil || next.Scheme != c.url.Scheme || next.Host != c.url.Host {
		return nil, fmt.Errorf("%s names a next page that is not its own", c.url.Host)
	}
	return next, nil
}
