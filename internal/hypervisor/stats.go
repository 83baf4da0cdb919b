package hypervisor

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

// As libvirt-common.h, libvirt-domain.h and virterror.h declare them.
typedef struct {
	char name[80];
	int type;
	union { int i; unsigned int u; unsigned long long ul; double d; char *s; } value;
} parameter;

typedef struct { void *domain; parameter *parameters; int count; } record;

typedef struct { int code; int domain; char *message; } failure;

// The functions of libvirt that are called here.
typedef struct {
	int (*stats)(void *connection, unsigned int groups, record ***records, unsigned int flags);
	void (*release)(record **records);
	const char *(*name)(void *domain);
	int (*uuid)(void *domain, char *text);
	failure *(*failed)(void);
} library;

// load finds the functions; the binding has opened the library before, or it would have no connection.
static int load(library *l) {
	void *opened = dlopen("libvirt.so.0", RTLD_NOW | RTLD_LOCAL);
	return opened
		&& (l->stats = dlsym(opened, "virConnectGetAllDomainStats"))
		&& (l->release = dlsym(opened, "virDomainStatsRecordListFree"))
		&& (l->name = dlsym(opened, "virDomainGetName"))
		&& (l->uuid = dlsym(opened, "virDomainGetUUIDString"))
		&& (l->failed = dlsym(opened, "virGetLastError"));
}

// An answer of the call: records, of which there are count, or why there are none.
typedef struct { record **records; int count; int code; char message[1024]; } answer;

// ask makes the call. Its error is read at once, because libvirt keeps that for each thread.
static void ask(library *l, void *connection, unsigned int groups, unsigned int flags, answer *a) {
	a->count = l->stats(connection, groups, &a->records, flags);
	if (a->count >= 0)
		return;
	failure *f = l->failed();
	if (f) {
		a->code = f->code;
		snprintf(a->message, sizeof a->message, "%s", f->message ? f->message : "");
	}
}

// A domain, as far as a record tells: the groups that it had something of are known.
typedef struct {
	const char *name;
	char uuid[37];
	unsigned int known;
	int state;
	unsigned int vcpus;
	unsigned long long memory;
} summary;

enum { STATE = 1 << 0, BALLOON = 1 << 2, VCPU = 1 << 3, INT = 1, UINT = 2, ULLONG = 4 };

static void summarise(library *l, answer *a, int index, summary *s) {
	record *r = a->records[index];
	s->name = l->name(r->domain);
	l->uuid(r->domain, s->uuid);
	for (parameter *p = r->parameters; p < r->parameters + r->count; p++) {
		if (p->type == INT && strcmp(p->name, "state.state") == 0) {
			s->state = p->value.i;
			s->known |= STATE;
		} else if (p->type == ULLONG && strcmp(p->name, "balloon.maximum") == 0) {
			s->memory = p->value.ul;
			s->known |= BALLOON;
		} else if (p->type == UINT && strcmp(p->name, "vcpu.current") == 0) {
			s->vcpus = p->value.u;
			s->known |= VCPU;
		}
	}
}

static void release(library *l, answer *a) { l->release(a->records); }
*/
import "C"

import (
	"errors"
	"sync"
	"unsafe"

	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// The groups of facts that domainStats can ask for.
const (
	// powerStats never waits for a VM.
	powerStats = libvirt.DOMAIN_STATS_STATE
	// sizeStats adds virtual CPUs and memory. For more of the same groups libvirtd asks QEMU of each VM that runs, and
	// waits for it.
	sizeStats = powerStats | libvirt.DOMAIN_STATS_BALLOON | libvirt.DOMAIN_STATS_VCPU
)

// errLacking: libvirt's driver does not know all that was asked for, as its test driver.
var errLacking = errors.New("the hypervisor does not tell all that was asked for of all domains in one call")

// domainStats lists all domains, whether they run or not, with the groups of facts that are asked for. It takes one call,
// and waits for no job that is under way on a domain.
//
// The binding has a function for that call as well. After it, that asks each domain for the number of its virtual CPUs,
// whatever was wanted (since v1.11002.0), so that one call becomes as many as there are domains.
func domainStats(conn *libvirt.Connect, groups libvirt.DomainStatsTypes) ([]machine.Domain, error) {
	l, err := statsLibrary()
	if err != nil {
		return nil, err
	}
	raw, err := conn.RawPtr()
	if err != nil {
		return nil, wrap(err, "use the connection")
	}
	defer func() { _, _ = libvirt.CloseRawPtr(raw) }()
	var a C.answer
	C.ask(l, unsafe.Pointer(raw), C.uint(groups), C.uint(libvirt.CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT), &a)
	if a.count < 0 {
		return nil, wrap(libvirt.Error{Code: libvirt.ErrorNumber(a.code), Message: C.GoString(&a.message[0])}, "list the domains")
	}
	defer C.release(l, &a)
	domains := make([]machine.Domain, 0, a.count)
	for i := range a.count {
		var s C.summary
		C.summarise(l, &a, i, &s)
		if groups&^libvirt.DomainStatsTypes(s.known) != 0 {
			return nil, errLacking
		}
		domains = append(domains, machine.Domain{
			Name:      C.GoString(s.name),
			UUID:      C.GoString(&s.uuid[0]),
			Power:     powerOf(libvirt.DomainState(s.state)),
			VCPUs:     int(s.vcpus),
			MemoryMiB: wholeMiB(uint64(s.memory)),
		})
	}
	return domains, nil
}

// statsLibrary finds libvirt's functions, once.
var statsLibrary = sync.OnceValues(func() (*C.library, error) {
	l := new(C.library)
	if C.load(l) == 0 {
		return nil, errors.New("libvirt's client library has no virConnectGetAllDomainStats")
	}
	return l, nil
})
