package addons

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

const (
	userAgent = "terraform-provider-cockpit"
	// requestTimeout bounds one request. Webhooks of add-ons that have just begun may take the most of it.
	requestTimeout = 30 * time.Second
	// lastWords is how long Helm may go on to write down what became of a release when its operation was ended.
	lastWords = 10 * time.Second
)

// installed are the add-ons of one cluster. It implements cluster.Addons.
type installed struct {
	charts    *charts
	typed     kubernetes.Interface
	dynamic   dynamic.Interface
	metadata  metadata.Interface
	discovery func() (discovery.CachedDiscoveryInterface, error)
	releases  releases
	// releaseOf is the catalogue's.
	releaseOf func(cluster.AddonSpec, cluster.Addon) (release, error)
	now       func() time.Time
}

// open returns the add-ons of the cluster of a kubeconfig. It does no I/O.
func open(kubeconfig []byte, c *charts) (*installed, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.Timeout = requestTimeout
	config.UserAgent = userAgent
	config.QPS = -1                           // What Helm sends is bounded by what charts hold.
	config.WarningHandler = rest.NoWarnings{} // Of charts that are not ours there are many.
	k := &installed{
		charts: c, releases: &helm{configure: configureFor(config)}, releaseOf: releaseOf, now: time.Now,
		discovery: func() (discovery.CachedDiscoveryInterface, error) { return cachedDiscovery(config) },
	}
	for _, make := range []func() error{
		func() (err error) { k.typed, err = kubernetes.NewForConfig(config); return },
		func() (err error) { k.dynamic, err = dynamic.NewForConfig(config); return },
		func() (err error) { k.metadata, err = metadata.NewForConfig(config); return },
	} {
		if err := make(); err != nil {
			return nil, fmt.Errorf("make a client for %s: %w", config.Host, err)
		}
	}
	return k, nil
}

func cachedDiscovery(config *rest.Config) (discovery.CachedDiscoveryInterface, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return memory.NewMemCacheClient(client), nil
}

// getter gives Helm its clients for one operation. It implements genericclioptions.RESTClientGetter.
type getter struct {
	config    *rest.Config
	namespace string
	discovery discovery.CachedDiscoveryInterface
	mapper    meta.ResettableRESTMapper
}

func newGetter(config *rest.Config, namespace string) (*getter, error) {
	cache, err := cachedDiscovery(config)
	if err != nil {
		return nil, err
	}
	return &getter{config: config, namespace: namespace, discovery: cache, mapper: restmapper.NewDeferredDiscoveryRESTMapper(cache)}, nil
}

// ToRESTConfig returns a copy, which its users alter.
func (g *getter) ToRESTConfig() (*rest.Config, error) { return rest.CopyConfig(g.config), nil }

// ToDiscoveryClient returns the one of the operation.
func (g *getter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	return g.discovery, nil
}

// ToRESTMapper returns the one of the operation.
func (g *getter) ToRESTMapper() (meta.RESTMapper, error) { return g.mapper, nil }

// ToRawKubeConfigLoader tells the namespace, which is all that it is asked for.
func (g *getter) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	overrides := &clientcmd.ConfigOverrides{Context: clientcmdapi.Context{Namespace: g.namespace}}
	return clientcmd.NewDefaultClientConfig(*clientcmdapi.NewConfig(), overrides)
}

// bound returns a configuration whose requests end with a context. Helm takes no context of its callers to the API.
func bound(ctx context.Context, config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &binding{ctx: ctx, next: next} })
	return config
}

// binding ends requests with a context that is not theirs.
type binding struct {
	ctx  context.Context
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b *binding) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(b.ctx, func() { cancel(context.Cause(b.ctx)) }) //nolint:contextcheck // ends with both
	end := func() { stop(); cancel(nil) }
	answer, err := b.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		end()
		return nil, err
	}
	answer.Body = &boundBody{answer.Body, end}
	return answer, nil
}

// boundBody lets go of the context when the answer was read.
type boundBody struct {
	io.ReadCloser
	end func()
}

// Close implements io.Closer.
func (b *boundBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// outliving returns a context that ends a while after another one, or with the call of its function.
func outliving(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(by)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-out.Done():
		}
	})
	return out, func() { stop(); cancel() }
}
