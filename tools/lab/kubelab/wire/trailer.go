package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The trailer is JSON, its length as a big-endian 32-bit number, and the magic. The kernel ignores what follows an
// ELF image, so one build of the double serves as every version.
const (
	magic      = "K3SDOUBL"
	footerSize = len(magic) + 4
	maxTrailer = 4096
)

// ErrNoTrailer means that a file carries no trailer.
var ErrNoTrailer = errors.New("no trailer")

// Trailer is what the mirror writes behind the double's binary.
type Trailer struct {
	// Version is the k3s tag, such as v1.36.1+k3s1.
	Version string `json:"version"`
	// Commit is the short commit that --version prints.
	Commit string `json:"commit"`
	// Control is the URL of the control-plane service, without a path.
	Control string `json:"control"`
}

// Encode returns the trailer's bytes.
func (t Trailer) Encode() ([]byte, error) {
	b, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	if len(b) > maxTrailer {
		return nil, fmt.Errorf("trailer of %d bytes is too long", len(b))
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(b)))
	return append(b, magic...), nil
}

// ReadTrailer reads the trailer at the end of a file of the given size. A file without one is ErrNoTrailer.
func ReadTrailer(r io.ReaderAt, size int64) (Trailer, error) {
	var t Trailer
	if size < int64(footerSize) {
		return t, ErrNoTrailer
	}
	footer := make([]byte, footerSize)
	if _, err := r.ReadAt(footer, size-int64(footerSize)); err != nil {
		return t, fmt.Errorf("reading the footer: %w", err)
	}
	if string(footer[4:]) != magic {
		return t, ErrNoTrailer
	}
	n := int64(binary.BigEndian.Uint32(footer))
	if n > maxTrailer || n > size-int64(footerSize) {
		return t, fmt.Errorf("trailer of %d bytes cannot be", n)
	}
	b := make([]byte, n)
	if _, err := r.ReadAt(b, size-int64(footerSize)-n); err != nil {
		return t, fmt.Errorf("reading the trailer: %w", err)
	}
	if err := json.Unmarshal(b, &t); err != nil {
		return t, fmt.Errorf("decoding the trailer: %w", err)
	}
	return t, nil
}
