package addons

import "strings"

// mirrored is where a registry that stands in for all others has an image: under its path without the name of its own
// registry, so quay.io/cilium/cilium becomes REGISTRY/cilium/cilium, as in the mirrors of k3s' registries.yaml. Without a
// registry it stays where it is.
func mirrored(registry, repository string) string {
	if registry == "" {
		return repository
	}
	host, path, ok := strings.Cut(repository, "/")
	switch {
	case !ok:
		path = "library/" + repository // Docker's official images have no owner in their short names.
	case !strings.ContainsAny(host, ".:") && host != "localhost":
		path = repository
	}
	return strings.TrimSuffix(registry, "/") + "/" + path
}
