//go:build !linux

package fleet

import (
	"syscall"
	"time"
)

// readable cannot tell here.
func readable(syscall.RawConn) bool { return false }

// waited is not counted here.
func waited() time.Duration { return 0 }
