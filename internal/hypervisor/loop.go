package hypervisor

import (
	"sync"

	"libvirt.org/go/libvirt"
)

// startLoop starts libvirt's event loop, which keep-alive needs, once for the process and before its first connection
// (https://libvirt.org/html/libvirt-libvirt-event.html). It runs until the process ends: libvirt has no way to give an
// implementation of the loop back.
var startLoop = sync.OnceValue(func() error {
	if err := libvirt.EventRegisterDefaultImpl(); err != nil {
		return wrap(err, "start libvirt's event loop")
	}
	go func() {
		for libvirt.EventRunDefaultImpl() == nil {
		}
	}()
	return nil
})
