package addons

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"
)

const (
	ociScheme = "oci://"
	// chartLayer is the media type of a packed chart (https://helm.sh/docs/topics/registries/).
	chartLayer = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	// maxManifest is far more than any manifest has; a list of tags is read in pages of a size that registries choose.
	maxManifest = 1 << 20
)

// fromRegistry gets a chart from an OCI registry, as its own repository under the URL.
func (c *charts) fromRegistry(ctx context.Context, address string, s source) (*bundle, error) {
	base := strings.TrimSuffix(strings.TrimPrefix(address, ociScheme), "/")
	repository, err := remote.NewRepository(base + "/" + s.chart)
	if err != nil {
		return nil, err
	}
	host := repository.Reference.Registry
	client := &auth.Client{Client: c.bare, Cache: auth.NewCache(), Header: http.Header{"User-Agent": {userAgent}}}
	if mirror, ok := strings.CutPrefix(c.options.Repository, ociScheme); ok && c.options.Username != "" {
		mirror, _, _ = strings.Cut(mirror, "/")
		client.Credential = auth.StaticCredential(mirror, auth.Credential{Username: c.options.Username, Password: c.options.Password})
	}
	repository.Client, repository.PlainHTTP = client, plainRegistry(host)

	var data []byte
	err = c.again(ctx, func(ctx context.Context) (err error) {
		data, err = pull(ctx, repository, s.version)
		return classify(err)
	})
	if errors.Is(err, errdef.ErrNotFound) {
		return nil, tagged(ctx, repository, s.version)
	}
	if err != nil {
		return nil, err
	}
	return unpack(data, s)
}

// pull gets the packed chart of a version. In tags "+" stands as "_".
func pull(ctx context.Context, repository *remote.Repository, version string) ([]byte, error) {
	found, err := repository.Resolve(ctx, strings.ReplaceAll(version, "+", "_"))
	if err != nil {
		return nil, err
	}
	if found.Size > maxManifest {
		return nil, fmt.Errorf("its manifest is larger than %d MiB", maxManifest>>20)
	}
	text, err := content.FetchAll(ctx, repository, found)
	if err != nil {
		return nil, err
	}
	var manifest ocispec.Manifest
	if err := json.Unmarshal(text, &manifest); err != nil {
		return nil, notAChart(err)
	}
	for _, layer := range manifest.Layers {
		switch {
		case layer.MediaType != chartLayer:
		case layer.Size > maxArchive:
			return nil, fmt.Errorf("it is larger than %d MiB", maxArchive>>20)
		default:
			return content.FetchAll(ctx, repository, layer)
		}
	}
	return nil, errors.New("it is not a chart, but something else that a registry can hold")
}

// tagged is the error of a version that a registry does not have.
func tagged(ctx context.Context, repository *remote.Repository, version string) error {
	var tags []string
	err := repository.Tags(ctx, "", func(page []string) error { tags = append(tags, page...); return nil })
	if err != nil || len(tags) == 0 {
		return fmt.Errorf("it has no such chart, or shows it to nobody without a login: %s", repository.Reference.Repository)
	}
	return noVersion(version, tags)
}

// classify tells apart a registry that answers and one that does not.
func classify(err error) error {
	var answer *errcode.ErrorResponse
	var network net.Error
	switch {
	case errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%w", errdef.ErrNotFound)
	case errors.As(err, &answer):
		return statusError(answer.StatusCode)
	case errors.As(err, &network):
		return fmt.Errorf("%w: %w", errUnreachable, withoutURL(err))
	}
	return err
}

// plainRegistry reports whether a registry is asked without TLS, which is so on this very machine, as everywhere in that world.
func plainRegistry(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	ip, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && ip.IsLoopback()
}
