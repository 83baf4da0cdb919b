package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"io"

	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// apart makes a connection besides the host's own, for a stream: it would keep other calls and keep-alive waiting. The
// caller closes it.
func (h *host) apart(ctx context.Context) (*link, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout,
		fmt.Errorf("%w: no connection to %s within %s", machine.ErrUnreachable, publicURI(h.config.URI), dialTimeout))
	defer cancel()
	type attempt struct {
		link *link
		err  error
	}
	done := make(chan attempt)
	go func() {
		l, err := open(h.config.URI)
		select {
		case done <- attempt{l, err}:
		case <-ctx.Done(): // nobody waits any more
			if l != nil {
				l.close()
			}
		}
	}()
	select {
	case a := <-done:
		return a.link, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// transfer writes the golden image's file into a volume. Its holes do not cross the network.
func (f *filling) transfer(ctx context.Context, from, to *link, volume string) error {
	p := f.progress()
	p.log(ctx, "copying the template")
	source, sink, err := f.streams(from, to, volume, true)
	if refused(err) { // by a libvirt older than 3.4
		source, sink, err = f.streams(from, to, volume, false)
	}
	if err != nil {
		return err
	}
	defer source.free()
	defer sink.free()
	if err := p.during(ctx, "copying the template", func() error { return pump(ctx, source, sink, p) }); err != nil {
		source.abort()
		sink.abort()
		return err
	}
	if err := source.finish(); err != nil {
		sink.abort()
		return err
	}
	if err := sink.finish(); err != nil {
		return err
	}
	p.log(ctx, "template copied")
	return nil
}

// streams opens both ends of a copy.
func (f *filling) streams(from, to *link, volume string, sparse bool) (source, sink *end, err error) {
	var download libvirt.StorageVolDownloadFlags
	var upload libvirt.StorageVolUploadFlags
	if sparse {
		download, upload = libvirt.STORAGE_VOL_DOWNLOAD_SPARSE_STREAM, libvirt.STORAGE_VOL_UPLOAD_SPARSE_STREAM
	}
	t := f.template
	source = &end{link: from, doing: fmt.Sprintf("read the template %q in storage pool %q of hypervisor %q", t.Volume, t.Pool, t.Hypervisor)}
	err = source.open(t.Pool, t.Volume, func(v *libvirt.StorageVol, s *libvirt.Stream) error { return v.Download(s, 0, 0, download) })
	if err != nil {
		return nil, nil, err
	}
	sink = &end{link: to, doing: fmt.Sprintf("write the volume %q in storage pool %q of hypervisor %q", volume, f.pool, f.host.name)}
	err = sink.open(f.pool, volume, func(v *libvirt.StorageVol, s *libvirt.Stream) error { return v.Upload(s, 0, 0, upload) })
	if err != nil {
		source.abort()
		source.free()
		return nil, nil, err
	}
	return source, sink, nil
}

// refused reports whether a hypervisor does not know a flag.
func refused(err error) bool {
	return errors.Is(err, libvirt.ERR_INVALID_ARG) || errors.Is(err, libvirt.ERR_NO_SUPPORT) || errors.Is(err, libvirt.ERR_ARGUMENT_UNSUPPORTED)
}

// end is one end of a copy: a stream from or into a volume, whose errors say which.
type end struct {
	stream *libvirt.Stream
	link   *link
	doing  string
}

// open begins the stream. Its user frees it.
func (e *end) open(pool, volume string, begin func(*libvirt.StorageVol, *libvirt.Stream) error) error {
	p, err := e.link.conn.LookupStoragePoolByName(pool)
	if err != nil {
		return e.explain(err)
	}
	defer func() { _ = p.Free() }()
	vol, err := p.LookupStorageVolByName(volume)
	if err != nil {
		return e.explain(err)
	}
	defer func() { _ = vol.Free() }()
	if e.stream, err = e.link.conn.NewStream(0); err != nil {
		return e.explain(err)
	}
	if err := begin(vol, e.stream); err != nil {
		e.free()
		return e.explain(err)
	}
	return nil
}

func (e *end) explain(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	err = wrap(err, "%s", e.doing)
	if !e.link.alive() {
		return broken(err)
	}
	return err
}

// finish makes sure that all has arrived.
func (e *end) finish() error { return e.explain(e.stream.Finish()) }

// abort gives the stream up, which may fail where it has failed itself.
func (e *end) abort() { _ = e.stream.Abort() }

func (e *end) free() { _ = e.stream.Free() }

// RecvFlags, RecvHole, Send and SendHole are those of libvirt's stream.

func (e *end) RecvFlags(p []byte, flags libvirt.StreamRecvFlagsValues) (int, error) {
	n, err := e.stream.RecvFlags(p, flags)
	return n, e.explain(err)
}

func (e *end) RecvHole(flags uint32) (int64, error) {
	n, err := e.stream.RecvHole(flags)
	return n, e.explain(err)
}

func (e *end) Send(p []byte) (int, error) {
	n, err := e.stream.Send(p)
	return n, e.explain(err)
}

func (e *end) SendHole(length int64, flags uint32) error {
	return e.explain(e.stream.SendHole(length, flags))
}
