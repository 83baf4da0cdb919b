package main

import (
	"fmt"
	"net"
	"os"
)

// notifyReady tells systemd that the service has started, if it asked for that.
func notifyReady() error {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return nil
	}
	if name[0] == '@' {
		name = "\x00" + name[1:]
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notifying systemd: %w", err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("READY=1\n")); err != nil {
		return fmt.Errorf("notifying systemd: %w", err)
	}
	return nil
}
