package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"
)

// logger writes lines in the form of k3s's own log.
type logger struct {
	mu  sync.Mutex
	out io.Writer
}

var log = &logger{out: os.Stderr}

func (l *logger) line(level, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A log that cannot be written has nowhere to be reported.
	_, _ = fmt.Fprintf(l.out, "time=%q level=%s msg=%s\n", time.Now().UTC().Format(time.RFC3339), level, strconv.Quote(fmt.Sprintf(format, args...)))
}

func (l *logger) infof(format string, args ...any)  { l.line("info", format, args...) }
func (l *logger) warnf(format string, args ...any)  { l.line("warning", format, args...) }
func (l *logger) errorf(format string, args ...any) { l.line("error", format, args...) }
