// Command terraform-provider-cockpit serves the provider to Terraform and OpenTofu.
package main

import (
	"context"
	"flag"
	"log"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/provider"
)

// version is set by the release's linker flags.
var version = "dev"

func main() {
	var debug bool
	flag.BoolVar(&debug, "debug", false, "serve for a debugger and print TF_REATTACH_PROVIDERS")
	flag.Parse()

	err := providerserver.Serve(context.Background(), provider.New(version), providerserver.ServeOpts{
		Address:         provider.Address,
		Debug:           debug,
		ProtocolVersion: provider.ProtocolVersion,
	})
	if err != nil {
		log.Fatal(err)
	}
}
