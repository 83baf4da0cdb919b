package wire

import (
	"bytes"
	"errors"
	"testing"
)

func TestTrailer(t *testing.T) {
	want := Trailer{Version: "v1.36.1+k3s1", Commit: "f8b47eaf", Control: "http://10.77.0.1"}
	b, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	file := append([]byte("\x7fELF and the rest of a program"), b...)
	got, err := ReadTrailer(bytes.NewReader(file), int64(len(file)))
	if err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestTrailerMissing(t *testing.T) {
	for name, file := range map[string]string{"empty": "", "short": "abc", "program": "\x7fELF and the rest of a program"} {
		if _, err := ReadTrailer(bytes.NewReader([]byte(file)), int64(len(file))); !errors.Is(err, ErrNoTrailer) {
			t.Errorf("%s: got %v, want ErrNoTrailer", name, err)
		}
	}
	lying := "\xff\xff\xff\xff" + magic
	if _, err := ReadTrailer(bytes.NewReader([]byte(lying)), int64(len(lying))); err == nil {
		t.Error("a trailer longer than its file was read")
	}
}
