package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/cache"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/image"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/internal/run"
)

// kubernetesVersion is what the control plane reports; it is that of k8s.io/kubernetes in tools/controlplane/go.mod.
const kubernetesVersion = "1.36.1"

// cacheKeep is how long a part that no lab needs any more stays in the cache.
const cacheKeep = 14 * 24 * time.Hour

// EnvSource names the environment variable that tells where the sources of the tools module are, for a program that was
// built elsewhere.
const EnvSource = "COCKPIT_LAB_SOURCE"

// Parts are what a lab is made of, as paths in the cache.
type Parts struct {
	// Image is the golden image, Volume the name it gets in a pool; BrokenImage and BrokenVolume are those of the one
	// with the masked agent, empty where none was asked for.
	Image, Volume             string
	BrokenImage, BrokenVolume string
	// Lab is this tool's program. ControlPlane and K3sDouble are empty where real artifacts stand in for them.
	Lab, ControlPlane, K3sDouble string
	// NFS is the archive of the file server's programs, "" where none was asked for.
	NFS string
}

// Prepare makes what is missing in the cache, everything at the same time. What is there costs nothing; from nothing the
// image takes one to two minutes and the control plane six to fourteen on two cores.
func Prepare(ctx context.Context, c Config) (Parts, error) {
	c, err := c.validate()
	if err != nil {
		return Parts{}, err
	}
	dir, err := cache.Dir()
	if err != nil {
		return Parts{}, err
	}
	source, err := sourceDir()
	if err != nil {
		return Parts{}, err
	}
	var p Parts
	group, ctx := errgroup.WithContext(ctx)
	step := func(what string, f func(log func(string, ...any)) error) {
		group.Go(func() error {
			began := time.Now()
			err := f(func(format string, args ...any) { c.Log(what+": "+format, args...) })
			if err == nil {
				c.Log("%s: ready, %.1f s", what, time.Since(began).Seconds())
			}
			return err
		})
	}
	step("golden image", func(log func(string, ...any)) (err error) {
		o := image.Options{Emulated: !c.KVM}
		p.Volume = o.Volume()
		if p.Image, err = image.Build(ctx, dir, o, log); err != nil || !c.BrokenTemplate {
			return err
		}
		o.MaskAgent = true
		p.BrokenVolume = o.Volume()
		p.BrokenImage, err = image.Build(ctx, dir, o, log)
		return err
	})
	binary := func(into *string, b program) {
		step(b.name, func(log func(string, ...any)) (err error) {
			*into, err = b.build(ctx, source, filepath.Join(dir, "bin"), log)
			return err
		})
	}
	binary(&p.Lab, labProgram)
	if c.Artifacts == "" {
		binary(&p.K3sDouble, doubleProgram)
		binary(&p.ControlPlane, controlPlaneProgram)
	}
	if c.NFS {
		step("file server", func(log func(string, ...any)) (err error) {
			p.NFS, err = nfsArchive(ctx, filepath.Join(dir, "bin"), log)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return Parts{}, err
	}
	for _, sub := range []string{"images", "bin"} {
		if err := cache.Prune(filepath.Join(dir, sub), time.Now().Add(-cacheKeep)); err != nil {
			return Parts{}, err
		}
	}
	return p, nil
}

// program is a Go program of the tools directory.
type program struct {
	name string
	// module is the directory of its Go module below the tools directory, pkg its package there.
	module, pkg string
	// sources are the directories below the module whose files go into it.
	sources []string
	ldflags string
	static  bool
}

var (
	labProgram    = program{name: "lab", module: ".", pkg: "./cmd/lab", sources: []string{"cmd/lab", "lab"}, ldflags: "-s -w"}
	doubleProgram = program{
		name: "k3s double", module: ".", pkg: "./k3sdouble", sources: []string{"k3sdouble", "lab/kubelab"}, ldflags: "-s -w", static: true,
	}
	controlPlaneProgram = program{
		name: "control plane", module: "controlplane", pkg: ".", sources: []string{"."},
		ldflags: "-s -w -X k8s.io/component-base/version.gitVersion=v" + kubernetesVersion +
			" -X k8s.io/component-base/version.gitMajor=" + strings.Split(kubernetesVersion, ".")[0] +
			" -X k8s.io/component-base/version.gitMinor=" + strings.Split(kubernetesVersion, ".")[1],
	}
)

func (b program) build(ctx context.Context, source, dir string, log func(string, ...any)) (string, error) {
	module := filepath.Join(source, b.module)
	key, err := b.key(os.DirFS(module))
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, strings.ReplaceAll(b.name, " ", "-")+"-"+key)
	err = cache.File(ctx, path, func(ctx context.Context, _, out string) error {
		log("building")
		cmd := run.Command(ctx, "go", "build", "-trimpath", "-ldflags", b.ldflags, "-o", out, b.pkg)
		cmd.Dir = module
		cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false")
		if b.static {
			cmd.Env = append(cmd.Env, "CGO_ENABLED=0")
		}
		return run.Do(cmd)
	})
	if err != nil {
		return "", fmt.Errorf("building the %s: %w", b.name, err)
	}
	return path, nil
}

// key hashes everything that the program is made from.
func (b program) key(module fs.FS) (string, error) {
	tree, err := cache.Tree(module, func(path string) bool {
		if path == "go.mod" || path == "go.sum" {
			return true
		}
		if strings.HasSuffix(path, "_test.go") {
			return false
		}
		for _, dir := range b.sources {
			if dir == "." || strings.HasPrefix(path, dir+"/") {
				return true
			}
		}
		return false
	})
	if err != nil {
		return "", err
	}
	return cache.Key(tree, b.pkg, b.ldflags, fmt.Sprint(b.static), runtime.Version(), runtime.GOARCH), nil
}

// sourceDir finds the sources of the tools module: from the environment, from where this program was built, or upwards of the
// working directory.
func sourceDir() (string, error) {
	var candidates []string
	if dir := os.Getenv(EnvSource); dir != "" {
		candidates = append(candidates, dir)
	}
	if _, file, _, ok := runtime.Caller(0); ok {
		candidates = append(candidates, filepath.Dir(filepath.Dir(file)))
	}
	if dir, err := os.Getwd(); err == nil {
		for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			candidates = append(candidates, dir, filepath.Join(dir, "tools"))
		}
	}
	for _, dir := range candidates {
		if _, err := os.Stat(filepath.Join(dir, "controlplane", "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("the sources of the lab are not found: run this in the provider's checkout, or set " + EnvSource + " to its tools directory")
}
