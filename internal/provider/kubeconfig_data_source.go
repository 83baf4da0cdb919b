package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
)

// expiryNotice is how long before its end a client certificate is warned of.
const expiryNotice = 30 * 24 * time.Hour

type kubeconfigDataSource struct {
	backend *backend
	now     func() time.Time
}

var _ datasource.DataSourceWithConfigure = (*kubeconfigDataSource)(nil)

func newKubeconfigDataSource() datasource.DataSource { return &kubeconfigDataSource{now: time.Now} }

type kubeconfigModel struct {
	ClusterID         types.String `tfsdk:"cluster_id"`
	Raw               types.String `tfsdk:"raw"`
	Filename          types.String `tfsdk:"filename"`
	Endpoint          types.String `tfsdk:"endpoint"`
	Host              types.String `tfsdk:"host"`
	CACertificate     types.String `tfsdk:"cluster_ca_certificate"`
	ClientCertificate types.String `tfsdk:"client_certificate"`
	ClientKey         types.String `tfsdk:"client_key"`
	ExpiresAt         types.String `tfsdk:"expires_at"`
}

// Metadata names the data source.
func (d *kubeconfigDataSource) Metadata(_ context.Context, _ datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = typeName + "_kubeconfig"
}

// Schema describes the data source.
func (d *kubeconfigDataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	computed := func(description string) schema.StringAttribute {
		return schema.StringAttribute{Computed: true, MarkdownDescription: description}
	}
	secret := func(description string) schema.StringAttribute {
		return schema.StringAttribute{Computed: true, Sensitive: true, MarkdownDescription: description}
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "The administrator's access to a cluster, read anew from a server at every refresh. Its parts configure the " +
			"`kubernetes` and `helm` providers directly. The key stands in the Terraform state: keep the state where secrets may be kept.",
		Attributes: map[string]schema.Attribute{
			"cluster_id": schema.StringAttribute{
				Required:            true,
				MarkdownDescription: "`id` of the cluster.",
				Validators:          []validator.String{clusterIDForm()},
			},
			"raw":                    secret("The kubeconfig file. Cluster, user and context have the cluster's name."),
			"filename":               computed("A name for that file, `kubeconfig-<cluster>.yaml`."),
			"endpoint":               computed("URL of the Kubernetes API, `https://host:port`: that of the cluster's `endpoint`, or else of a server."),
			"host":                   computed("Name or address in `endpoint`, without the port."),
			"cluster_ca_certificate": computed("Certificate of the cluster's authority in PEM."),
			"client_certificate":     computed("The administrator's certificate in PEM."),
			"client_key":             secret("The administrator's key in PEM."),
			"expires_at": computed("When `client_certificate` ends, as RFC 3339. k3s makes it for a year and renews it when a server " +
				"restarts within its last months; less than 30 days before the end there is a warning."),
		},
	}
}

// Configure takes over the provider's data.
func (d *kubeconfigDataSource) Configure(_ context.Context, req datasource.ConfigureRequest, resp *datasource.ConfigureResponse) {
	d.backend = backendOf(req.ProviderData, &resp.Diagnostics)
}

// Read reads the kubeconfig from a server of the cluster.
func (d *kubeconfigDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m kubeconfigModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	read := task{"read", theKubeconfig, m.ClusterID.ValueString()}
	if resp.Diagnostics.HasError() || !d.backend.ready(read, &resp.Diagnostics) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cluster.DefaultReadTimeout)
	defer cancel()
	k, err := d.backend.engine.Kubeconfig(ctx, m.ClusterID.ValueString())
	if err != nil {
		read.fail(&resp.Diagnostics, err, kubeconfigAdvice)
		return
	}
	if left := k.ExpiresAt.Sub(d.now()); left < expiryNotice {
		resp.Diagnostics.AddWarning(expiryText(k.Name, k.ExpiresAt, left),
			"Restart k3s on each server (systemctl restart k3s, or reboot the VM), one after the other: it then renews certificates that end soon, and the next refresh reads the new one.")
	}
	m.set(k)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// kubeconfigAdvice helps where a kubeconfig cannot be read although the cluster stands in the same configuration.
const kubeconfigAdvice = "If the cluster itself has to be mended first, apply it alone: terraform apply -target with the address of the cluster."

func expiryText(name string, end time.Time, left time.Duration) string {
	if left <= 0 {
		return fmt.Sprintf("The client certificate of cluster %q expired on %s", name, end.Format(time.DateOnly))
	}
	return fmt.Sprintf("The client certificate of cluster %q expires on %s, in %d days", name, end.Format(time.DateOnly), int(left.Hours()/24))
}

func (m *kubeconfigModel) set(k k3s.Kubeconfig) {
	m.Raw, m.Filename = types.StringValue(string(k.Raw)), types.StringValue("kubeconfig-"+k.Name+".yaml")
	m.Endpoint, m.Host = types.StringValue(k.Endpoint), types.StringValue(k.Host)
	m.CACertificate, m.ClientCertificate = types.StringValue(string(k.CACertificate)), types.StringValue(string(k.ClientCertificate))
	m.ClientKey, m.ExpiresAt = types.StringValue(string(k.ClientKey)), types.StringValue(k.ExpiresAt.Format(time.RFC3339))
}
