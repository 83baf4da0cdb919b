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

// Client asks GitHub, or a mirror with the same API, for the releases of k3s. It is safe for concurrent use.
type Client struct {
	url     *url.URL
	token   string
	http    *retryablehttp.Client
	timeout time.Duration

	// turn lets one List at a time in; the first answer serves the others.
	turn  chan struct{}
	known *ReleaseList
}

// NewClient makes a client for the releases at a URL, DefaultReleasesURL where it is empty. With a token GitHub grants
// more requests; it is sent to the host of that URL only. NewClient does no I/O.
func NewClient(releasesURL, token string) (*Client, error) {
	if releasesURL == "" {
		releasesURL = DefaultReleasesURL
	}
	u, err := url.Parse(releasesURL)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return nil, errors.New("the URL of the k3s releases is not an http or https URL")
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
	return &Client{url: u, token: token, http: c, timeout: listTimeout, turn: make(chan struct{}, 1)}, nil
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
	list.Releases = slices.Clone(list.Releases)
	return list, nil
}

// fetch reads page after page.
func (c *Client) fetch(ctx context.Context) (ReleaseList, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	list := ReleaseList{Source: SourceGitHub}
	next := c.url
	for page := 1; next != nil && page <= maxPages; page++ {
		var releases []Release
		var err error
		releases, next, err = c.page(ctx, next)
		list.Releases = append(list.Releases, releases...)
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%s did not answer within %s", c.url.Host, c.timeout)
		}
		if err != nil {
			list.Partial, list.Reason = true, err.Error()
			break
		}
	}
	if len(list.Releases) == 0 {
		return embedded(cmp.Or(list.Reason, c.url.Host+" lists no release of k3s"))
	}
	sortReleases(list.Releases)
	// A release published between two pages moves the last one of the first page onto the second.
	list.Releases = slices.CompactFunc(list.Releases, func(a, b Release) bool { return a.Version == b.Version })
	return list, nil
}

// page reads one page, and returns where the next one is; nil after the last. Releases beside an error are good ones.
func (c *Client) page(ctx context.Context, u *url.URL) ([]Release, *url.URL, error) {
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, nil, errors.New("the URL of the k3s releases cannot be asked")
	}
	req.Header.Set("Accept", "application/vnd.github+json")
	req.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	req.Header.Set("User-Agent", "terraform-provider-cockpit")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
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
	releases, err := decodeReleases(io.LimitReader(resp.Body, maxPageBytes))
	if err != nil {
		return nil, nil, fmt.Errorf("%s did not answer with a list of releases: %w", u.Host, err)
	}
	next, err := c.next(u, resp.Header)
	return releases, next, err
}

// refusal says in a sentence what an answer other than 200 means.
func (c *Client) refusal(resp *http.Response) error {
	host := c.url.Host
	limited := resp.StatusCode == http.StatusTooManyRequests ||
		resp.StatusCode == http.StatusForbidden && resp.Header.Get("X-Ratelimit-Remaining") == "0"
	switch {
	case resp.StatusCode == http.StatusUnauthorized && c.token != "":
		return fmt.Errorf("%s refuses the token that was given (%s): it is wrong, revoked or expired", host, resp.Status)
	case limited:
		text := "the rate limit of " + host + " is used up"
		if s, err := strconv.ParseInt(resp.Header.Get("X-Ratelimit-Reset"), 10, 64); err == nil {
			text += " until " + time.Unix(s, 0).UTC().Format(time.RFC3339)
		}
		if c.token == "" {
			text += "; with a token it is higher"
		}
		return errors.New(text)
	}
	return fmt.Errorf("%s answered %s", host, resp.Status)
}

// decodeReleases reads the API's answer, without drafts and without tags that are no release of k3s.
func decodeReleases(body io.Reader) ([]Release, error) {
	var answer []struct {
		TagName     string    `json:"tag_name"`
		Draft       bool      `json:"draft"`
		PublishedAt time.Time `json:"published_at"`
		Assets      []struct {
			Name string `json:"name"`
		} `json:"assets"`
	}
	if err := json.NewDecoder(body).Decode(&answer); err != nil {
		return nil, err
	}
	var out []Release
	for _, a := range answer {
		v, err := ParseVersion(a.TagName)
		if err != nil || a.Draft {
			continue
		}
		r := Release{Version: v, PublishedAt: a.PublishedAt}
		for _, asset := range a.Assets {
			if arch, ok := assetArch[asset.Name]; ok {
				r.Arches = append(r.Arches, arch)
			}
		}
		slices.Sort(r.Arches)
		out = append(out, r)
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
