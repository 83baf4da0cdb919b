package acceptance

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab"
)

// The variables that tell where the built provider and the Terraform (or OpenTofu) to run it with are.
const (
	envProvider  = "COCKPIT_PROVIDER"
	envTerraform = "TF_ACC_TERRAFORM_PATH"
)

// cli is a working directory in which the built provider is used as a user would.
type cli struct {
	t         testing.TB
	dir       string
	terraform string
	env       []string
}

// newCLI prepares a directory for the command line. In the end everything is destroyed that was made there, and nothing
// may be left of the clusters.
func newCLI(t testing.TB, l *lab.Lab, clusters ...string) *cli {
	t.Helper()
	binary, terraform := os.Getenv(envProvider), os.Getenv(envTerraform)
	if binary == "" || terraform == "" {
		t.Skipf("needs the built provider in %s and Terraform in %s (make testacc)", envProvider, envTerraform)
	}
	c := &cli{t: t, dir: t.TempDir(), terraform: terraform}
	c.env = append(os.Environ(), "CHECKPOINT_DISABLE=1", "TF_CLI_CONFIG_FILE="+c.write("cli.tfrc",
		fmt.Sprintf("provider_installation {\n dev_overrides { \"cockpit-k3s/cockpit\" = %q }\n direct {}\n}\n", filepath.Dir(binary))))
	t.Cleanup(func() {
		if out, err := c.try("destroy", "-auto-approve"); err != nil {
			t.Errorf("destroy: %v\n%s", err, out)
		}
		for _, name := range clusters {
			if err := leftOvers(t, l, name); err != nil {
				t.Error(err)
			}
		}
	})
	return c
}

// write writes a file of the directory and returns its path.
func (c *cli) write(file, content string) string {
	c.t.Helper()
	path := filepath.Join(c.dir, file)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// use makes clusters the configuration, with the provider as the first of them has it.
func (c *cli) use(l *lab.Lab, clusters ...config) {
	c.t.Helper()
	text := "terraform {\n required_providers {\n  cockpit = { source = \"cockpit-k3s/cockpit\" }\n }\n}\n" + clusters[0].provider(l)
	for _, cluster := range clusters {
		text += cluster.resources()
	}
	c.write("main.tf", text)
}

// newQuickstart prepares examples/quickstart for a cluster of that name and number of workers.
func newQuickstart(t testing.TB, l *lab.Lab, name string, workers int) *cli {
	t.Helper()
	c := newCLI(t, l, name)
	files, err := filepath.Glob("../../examples/quickstart/*.tf")
	if err != nil || len(files) == 0 {
		t.Fatalf("the quickstart is not where it should be: %v", err)
	}
	for _, f := range files {
		c.write(filepath.Base(f), readFile(t, f))
	}
	h, err := l.Hypervisor(firstHV)
	if err != nil {
		t.Fatal(err)
	}
	c.write("terraform.tfvars", fmt.Sprintf(`
name               = %q
k3s_version        = %q
hypervisor_uri     = %q
template           = { pool = %q, volume = %q }
install_script_url = %q
server             = { vcpus = 2, memory_gib = 1, disk_gib = 8 }
worker             = { vcpus = 1, memory_gib = 1, disk_gib = 8 }
workers            = %d
`, name, k3sVersion, h.URI, lab.TemplatesPool, l.Template, l.InstallScriptURL(), workers))
	return c
}

func (c *cli) command(args ...string) *exec.Cmd {
	cmd := exec.Command(c.terraform, append(args, "-no-color")...)
	cmd.Dir, cmd.Env = c.dir, c.env
	return cmd
}

func (c *cli) try(args ...string) (string, error) {
	out, err := c.command(args...).CombinedOutput()
	return string(out), err
}

// run runs Terraform and returns what it printed.
func (c *cli) run(args ...string) string {
	c.t.Helper()
	out, err := c.try(args...)
	if err != nil {
		c.t.Fatalf("terraform %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// fails runs Terraform, which has to fail and to say these texts.
func (c *cli) fails(texts []string, args ...string) {
	c.t.Helper()
	out, err := c.try(args...)
	if err == nil {
		c.t.Fatalf("terraform %s did not fail:\n%s", strings.Join(args, " "), out)
	}
	mentions(c.t, out, texts...)
}

// steady makes sure that a plan has nothing to do; drifted, that it has, and says these texts.
func (c *cli) steady() {
	c.t.Helper()
	c.run("plan", "-detailed-exitcode")
}

func (c *cli) drifted(texts ...string) {
	c.t.Helper()
	out, err := c.try("plan", "-detailed-exitcode")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 {
		c.t.Fatalf("the plan has nothing to do, or failed: %v\n%s", err, out)
	}
	mentions(c.t, out, texts...)
}

// logTo makes Terraform and the provider write their log to a file.
func (c *cli) logTo(file, level string) string {
	path := filepath.Join(c.dir, file)
	c.env = append(c.env, "TF_LOG="+level, "TF_LOG_PATH="+path)
	return path
}

// The built provider, used as the README says, tells its secrets to nobody: neither the join token nor the client key
// stands in the most talkative log, in the plan, in what Terraform prints, or in the state of cluster and pool.
func TestAccSecretsStaySecret(t *testing.T) {
	l := inLab(t)
	const name = "quiet"
	c := newQuickstart(t, l, name, 1)
	log := c.logTo("trace.log", "TRACE")
	said := c.run("plan", "-out=plan") + c.run("show", "plan") + c.run("show", "-json", "plan") + c.run("apply", "plan") + c.run("show")
	// Refresh, plan and scale once more with everything in the state.
	said += c.run("plan") + c.run("apply", "-auto-approve", "-var=workers=0")

	kubeconfig := []byte(c.run("output", "-raw", "kubeconfig"))
	if nodes, err := readyNodes(kubeconfig); err != nil || len(nodes) != 1 {
		t.Fatalf("the Ready nodes are %v, %v", nodes, err)
	}
	secrets := append(clientKey(t, kubeconfig), joinSecret(t, l, name))
	var state struct {
		Resources []struct {
			Mode, Type string
			Instances  json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(readFile(t, filepath.Join(c.dir, "terraform.tfstate"))), &state); err != nil {
		t.Fatal(err)
	}
	places := map[string]string{"what Terraform printed": said, "the trace log": readFile(t, log)}
	for _, r := range state.Resources {
		if r.Mode == "managed" {
			places["the state of "+r.Type] = string(r.Instances)
		}
	}
	if len(places) != 4 || len(places["the trace log"]) < 100_000 {
		t.Fatalf("looked at too little: %d places, a log of %d bytes", len(places), len(places["the trace log"]))
	}
	for place, text := range places {
		for i, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%s holds secret %d", place, i)
			}
		}
	}
}

// clientKey returns the forms in which the client key of a kubeconfig could show up.
func clientKey(t *testing.T, kubeconfig []byte) []string {
	t.Helper()
	m := regexp.MustCompile(`client-key-data: (\S+)`).FindSubmatch(kubeconfig)
	if m == nil {
		t.Fatal("the kubeconfig has no client key")
	}
	key, err := base64.StdEncoding.DecodeString(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(key), "\n")
	return []string{string(m[1]), lines[1]}
}
