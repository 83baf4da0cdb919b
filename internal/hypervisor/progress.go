package hypervisor

import (
	"context"
	"maps"
	"sync/atomic"
	"time"

	"github.com/hashicorp/terraform-plugin-log/tflog"
)

// reportPause is the pause between two lines in the log about one copy.
const reportPause = 5 * time.Second

const mib = 1 << 20

// progress is how far the copy of a file has come.
type progress struct {
	fields map[string]any
	begun  time.Time
	// at is where in the file the copy is, holes included; sent is what had to be moved for that, in bytes.
	at, sent atomic.Int64
	reported time.Time
}

// fields are what is logged of a copy of the template.
func (f *filling) fields(more map[string]any) map[string]any {
	fields := map[string]any{"hypervisor": f.host.name, "pool": f.pool, "volume": f.key.entry()}
	maps.Copy(fields, more)
	return fields
}

func (f *filling) progress() *progress {
	now := time.Now()
	return &progress{fields: f.fields(map[string]any{"of": f.image.physical}), begun: now, reported: now}
}

// add counts data that was moved, or a hole.
func (p *progress) add(data int, hole int64) {
	p.at.Add(int64(data) + hole)
	p.sent.Add(int64(data))
}

// log writes where the copy is: bytes of the file, of all, those that were sent, and the mean rate of these.
func (p *progress) log(ctx context.Context, text string) {
	elapsed, sent := time.Since(p.begun), p.sent.Load()
	fields := maps.Clone(p.fields)
	maps.Copy(fields, map[string]any{
		"bytes": p.at.Load(), "sent": sent, "rate_mib_s": int(float64(sent) / mib / max(elapsed.Seconds(), 1e-3)), "elapsed_ms": elapsed.Milliseconds(),
	})
	tflog.Info(ctx, text, fields)
}

// tick logs if the last line is old enough. It is for one goroutine.
func (p *progress) tick(ctx context.Context, text string) {
	if time.Since(p.reported) >= reportPause {
		p.reported = time.Now()
		p.log(ctx, text)
	}
}

// during logs from time to time while work lasts.
func (p *progress) during(ctx context.Context, text string, work func() error) error {
	done := make(chan struct{})
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		ticker := time.NewTicker(reportPause)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				p.log(ctx, text)
			case <-done:
				return
			}
		}
	}()
	err := work()
	close(done)
	<-logged
	return err
}
