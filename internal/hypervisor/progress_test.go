package hypervisor

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-log/tflogtest"
)

// logged runs work with a log and returns its lines, without the time of each.
func logged(t *testing.T, work func(context.Context)) []map[string]any {
	t.Helper()
	var out bytes.Buffer
	work(tflogtest.RootLogger(t.Context(), &out))
	lines, err := tflogtest.MultilineJSONDecode(&out)
	must(t, err)
	for _, line := range lines {
		for _, key := range []string{"@timestamp", "@module", "@caller"} {
			delete(line, key)
		}
	}
	return lines
}

func TestProgressIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := filling{host: newHost("hv-b", Config{}, 1), pool: "vms", key: cacheKey{"golden.qcow2", "0123456789ab"}, image: image{physical: 100 * mib}}
		lines := logged(t, func(ctx context.Context) {
			p := f.progress()
			must(t, p.during(ctx, "copying the template", func() error {
				time.Sleep(2 * time.Second)
				p.add(20*mib, 0)
				time.Sleep(2 * time.Second)
				p.add(0, 60*mib)
				time.Sleep(2 * time.Second)
				p.add(20*mib, 0)
				return nil
			}))
			p.log(ctx, "template copied")
		})
		line := func(text string, bytes, sent, rate, elapsed int) map[string]any {
			return map[string]any{
				"@level": "info", "@message": text, "hypervisor": "hv-b", "pool": "vms", "volume": "cockpit-golden.qcow2-0123456789ab",
				"of": float64(100 * mib), "bytes": float64(bytes), "sent": float64(sent), "rate_mib_s": float64(rate), "elapsed_ms": float64(elapsed),
			}
		}
		want := []map[string]any{
			line("copying the template", 80*mib, 20*mib, 4, 5000),
			line("template copied", 100*mib, 40*mib, 6, 6000),
		}
		if diff := gocmp.Diff(want, lines); diff != "" {
			t.Error(diff)
		}
	})
}

func TestWatchedCopyIsLoggedFromTimeToTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := filling{host: newHost("hv-b", Config{}, 1)}
		var at []int64
		lines := logged(t, func(ctx context.Context) {
			p := f.progress()
			for i := range int64(12) {
				time.Sleep(watchPause)
				p.at.Store(i)
				p.tick(ctx, "another process copies the template")
			}
		})
		for _, line := range lines {
			at = append(at, int64(line["bytes"].(float64)))
		}
		if want := []int64{4, 9}; !slices.Equal(at, want) {
			t.Errorf("it was logged at %d", at)
		}
	})
}
