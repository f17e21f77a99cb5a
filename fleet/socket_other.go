//go:build !linux

package fleet

import "syscall"

// readable cannot tell here.
func readable(syscall.RawConn) bool { return false }

// crowded cannot tell here.
func crowded() bool { return false }
