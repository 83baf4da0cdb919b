//go:build libvirt_without_admin

package hypervisor

// libvirt.org/go/libvirt v1.11010.0 compiles the C helpers of its admin API under the tag libvirt_without_admin too, but
// leaves out what they call, so that no program links. Nothing reaches these helpers: their callees need only exist.

/*
void admCloseCallback(void *conn, int reason, long id) { }
int virAdmConnectRegisterCloseCallbackWrapper(void *conn, void *cb, void *opaque, void *freecb, void *err) { return -1; }
int virAdmConnectUnregisterCloseCallbackWrapper(void *conn, void *cb, void *err) { return -1; }
*/
import "C"
