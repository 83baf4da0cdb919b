package hypervisor

import (
	"encoding/xml"
	"errors"
	"fmt"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// element is the record as it stands in a domain's metadata: JSON in one element of our namespace. libvirt hands the
// element out without its prefix and wants it back so.
type element struct {
	XMLName xml.Name
	Attrs   []xml.Attr `xml:",any,attr"`
	JSON    string     `xml:",chardata"`
}

// recordElement renders a record for libvirt's metadata call, which adds the namespace itself.
func recordElement(r record.Record) (string, error) {
	return render(r, element{XMLName: xml.Name{Local: record.Element}})
}

// recordMetadata renders a record for the definition of a domain.
func recordMetadata(r record.Record) (*libvirtxml.DomainMetadata, error) {
	text, err := render(r, element{
		XMLName: xml.Name{Local: record.Prefix + ":" + record.Element},
		Attrs:   []xml.Attr{{Name: xml.Name{Local: "xmlns:" + record.Prefix}, Value: record.Namespace}},
	})
	if err != nil {
		return nil, err
	}
	return &libvirtxml.DomainMetadata{XML: text}, nil
}

func render(r record.Record, e element) (string, error) {
	text, err := record.Encode(r)
	if err != nil {
		return "", err
	}
	e.JSON = string(text)
	b, err := xml.Marshal(e)
	if err != nil {
		return "", fmt.Errorf("render the record: %w", err)
	}
	return string(b), nil
}

// errNoRecord: the domain's metadata holds no record, so that it is not ours.
var errNoRecord = errors.New("no record in its metadata")

// readRecord reads the record of a domain. The error is errNoRecord where there is none.
func readRecord(d *libvirt.Domain) (record.Record, error) {
	text, err := d.GetMetadata(libvirt.DOMAIN_METADATA_ELEMENT, record.Namespace, libvirt.DOMAIN_AFFECT_CURRENT)
	switch {
	case errors.Is(err, libvirt.ERR_NO_DOMAIN_METADATA):
		return record.Record{}, errNoRecord
	case err != nil:
		return record.Record{}, wrap(err, "read its metadata")
	}
	return parseRecord(text)
}

// parseRecord reads the element that libvirt hands out.
func parseRecord(text string) (record.Record, error) {
	var e element
	if err := xml.Unmarshal([]byte(text), &e); err != nil {
		return record.Record{}, fmt.Errorf("read the record: %w", err)
	}
	return e.record()
}

func (e element) record() (record.Record, error) { return record.Decode([]byte(e.JSON)) }
