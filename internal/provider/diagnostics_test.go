package provider

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Every error has the summary of a task: nothing but diagnostics.go adds one, and every task begins with a verb.
func TestErrorsHaveOneGrammar(t *testing.T) {
	verb := regexp.MustCompile(`^"[a-z]+"$`)
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	tasks := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				switch n.Sel.Name {
				case "AddError", "AddAttributeError", "NewErrorDiagnostic", "NewAttributeErrorDiagnostic":
					if name != "diagnostics.go" {
						t.Errorf("%s: %s is for diagnostics.go; use task.fail", files.Position(n.Pos()), n.Sel.Name)
					}
				}
			case *ast.CompositeLit:
				typ, ok := n.Type.(*ast.Ident)
				if !ok || typ.Name != "task" {
					return true
				}
				tasks++
				if first, ok := n.Elts[0].(*ast.BasicLit); !ok || !verb.MatchString(first.Value) {
					t.Errorf("%s: a task begins with a verb", files.Position(n.Pos()))
				}
			}
			return true
		})
	}
	if tasks < 10 {
		t.Errorf("found %d tasks; does the test still look at the right thing?", tasks)
	}
}

func TestTaskSummary(t *testing.T) {
	for want, task := range map[string]task{
		`Unable to create cluster "prod"`: {"create", theCluster, "prod"},
		"Unable to use SSH key":           {"use", "SSH key", ""},
	} {
		if got := task.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestTimeoutAdvice(t *testing.T) {
	over, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	if got := timeoutAdvice(over, "create", 40*time.Minute); !strings.Contains(got, "40m0s") || !strings.Contains(got, "timeouts.create") {
		t.Errorf("got %q", got)
	}
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	for name, ctx := range map[string]context.Context{"running": t.Context(), "interrupted": interrupted} {
		if got := timeoutAdvice(ctx, "create", time.Minute); got != "" {
			t.Errorf("%s: got %q", name, got)
		}
	}
}
