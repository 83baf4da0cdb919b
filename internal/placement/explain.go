package placement

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// resources says how each kind of resource is spoken of.
var resources = [kinds]struct {
	field  machine.Field
	lack   string
	format func(int) string
	// setting is what raises a hypervisor's room.
	setting string
}{
	cpu:    {machine.FieldVCPUs, "too few vCPUs", strconv.Itoa, "cpu_overcommit"},
	memory: {machine.FieldMemory, "too little memory", gib, "memory_overcommit"},
	disk:   {machine.FieldDisk, "too little disk", gib, "disk_overcommit"},
	data:   {machine.FieldDataDisk, "too little disk for data", gib, "disk_overcommit"},
}

// gib writes an amount in MiB. It rounds down: room that is left must not look like enough when it is not. What nodes
// want is in whole GiB.
func gib(mib int) string {
	return strconv.FormatFloat(math.Floor(float64(mib)*10/1024)/10, 'f', -1, 64) + " GiB"
}

// full says why no host takes another node.
func (s *search) full() *Error {
	var taking []*host
	var reasons []string
	var lacking [kinds]int
	vacant := 0
	for _, h := range s.hosts {
		if h.Members == 0 {
			vacant++
		}
		switch {
		case !s.closed(h):
			short := h.short(s.want)
			for _, i := range short {
				lacking[i]++
			}
			reasons = append(reasons, s.lack(h, short))
		case h.new > 0:
			taking = append(taking, h)
		default:
			reasons = append(reasons, h.Name+" has one already")
		}
	}
	scarcest := slices.Index(lacking[:], slices.Max(lacking[:]))
	if s.Rule.AntiAffinity != record.Required {
		return &Error{resources[scarcest].field, fmt.Sprintf("there is room for %d of %d new nodes: %s",
			len(s.placed), len(s.Nodes), strings.Join(reasons, "; "))}
	}
	e := &Error{resources[scarcest].field, strings.Join(append([]string{s.apart(taking)}, reasons...), "; ")}
	if vacant < len(s.Nodes) {
		e.Field = machine.FieldPlacement
	}
	relaxed := s.Request
	relaxed.Rule.AntiAffinity = record.Preferred
	if _, err := Place(relaxed); err == nil {
		e.Text += `; add a hypervisor, or let servers share one with anti_affinity = "preferred"`
	}
	return e
}

// apart says how many hosts of their own the new nodes need, and which there are.
func (s *search) apart(taking []*host) string {
	need := fmt.Sprintf("%d new servers need %[1]d hypervisors of their own", len(s.Nodes))
	if len(s.Nodes) == 1 {
		need = "a new server needs a hypervisor of its own"
	}
	if len(taking) == 0 {
		return need + ", and none can take one"
	}
	return fmt.Sprintf("%s, and %d can take one: %s", need, len(taking), strings.Join(namesOf(taking), ", "))
}

// lack says what a host is short of, beside the nodes that were placed there.
func (s *search) lack(h *host, short []int) string {
	parts := make([]string, 0, len(short))
	for _, i := range short {
		r := resources[i]
		parts = append(parts, fmt.Sprintf("%s (%s wanted, %s of %s left, more with a higher %s)",
			r.lack, r.format(s.want[i]), r.format(max(h.left(i, s.want), 0)), r.format(max(h.rooms[i].total, 0)), r.setting))
	}
	return h.Name + " has " + strings.Join(parts, " and ")
}

func namesOf(hosts []*host) []string {
	names := make([]string, 0, len(hosts))
	for _, h := range hosts {
		names = append(names, h.Name)
	}
	return names
}
