//go:build !linux

package fleet

import (
	"syscall"
	"time"
)

// readable cannot tell here.
func readable(syscall.RawConn) bool { return false }

// idled cannot tell here.
func idled() (time.Duration, bool) { return 0, false }

// crowded cannot tell here.
func crowded() bool { return false }

// processors cannot tell here.
func processors() (times, bool) { return times{}, false }
