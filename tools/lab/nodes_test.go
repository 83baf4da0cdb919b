package lab

import (
	"encoding/xml"
	"reflect"
	"testing"
	"testing/fstest"
)

func TestConsoleFile(t *testing.T) {
	tests := []struct{ name, serial, want string }{
		{"file", `<serial type='file'><source path='/a.log'/></serial>`, "/a.log"},
		{"pty with log", `<serial type='pty'><log file='/b.log'/></serial>`, "/b.log"},
		{"pty without", `<serial type='pty'><source path='/dev/pts/1'/></serial>`, ""},
		{"second", `<serial type='pty'/><serial type='file'><source path='/c.log'/></serial>`, "/c.log"},
		{"none", ``, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var d domain
			text := `<domain><devices><interface><mac address='52:54:00:00:00:01'/></interface>` + tt.serial + `</devices></domain>`
			if err := xml.Unmarshal([]byte(text), &d); err != nil {
				t.Fatal(err)
			}
			if got := d.consoleFile(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if len(d.MACs) != 1 || d.MACs[0].Address != "52:54:00:00:00:01" {
				t.Errorf("MACs %+v", d.MACs)
			}
		})
	}
}

func TestParseLeases(t *testing.T) {
	text := "1796000000 52:54:00:AA:00:01 10.77.0.129 n1 01:52:54:00:aa:00:01\n1796000001 52:54:00:aa:00:02 10.77.0.130 * *\n\nduid 00:01\n"
	want := map[string]string{"52:54:00:aa:00:01": "10.77.0.129", "52:54:00:aa:00:02": "10.77.0.130"}
	if got := parseLeases(text); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A program is built again when what it is made from changes, and only then.
func TestProgramKey(t *testing.T) {
	files := func(change map[string]string) fstest.MapFS {
		fsys := fstest.MapFS{}
		for path, text := range map[string]string{
			"go.mod": "m", "go.sum": "s", "lab/a.go": "a", "lab/script.sh": "x", "lab/a_test.go": "t", "cmd/lab/main.go": "b", "other/c.go": "c",
		} {
			fsys[path] = &fstest.MapFile{Data: []byte(text)}
		}
		for path, text := range change {
			fsys[path] = &fstest.MapFile{Data: []byte(text)}
		}
		return fsys
	}
	key := func(b program, fsys fstest.MapFS) string {
		t.Helper()
		k, err := b.key(fsys)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	want := key(labProgram, files(nil))
	for path, same := range map[string]bool{
		"go.mod": false, "go.sum": false, "lab/a.go": false, "lab/script.sh": false, "cmd/lab/main.go": false, "lab/new.go": false,
		"lab/a_test.go": true, "other/c.go": true, "laboratory/d.go": true,
	} {
		if got := key(labProgram, files(map[string]string{path: "changed"})); (got == want) != same {
			t.Errorf("%s changed: same key %v, want %v", path, got == want, same)
		}
	}
	flagged := labProgram
	flagged.ldflags = "-s"
	if key(flagged, files(nil)) == want {
		t.Error("other flags, same key")
	}
}
