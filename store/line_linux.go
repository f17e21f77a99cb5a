package store

import "syscall"

// States of a TCP connection, as Linux counts them.
const (
	stateClose     = 7 // it was reset, or got no answer for too long
	stateCloseWait = 8 // the other side has closed it
)

// hungUp reports whether a TCP connection that we hold open is over. It asks for the state, because looking for the end of what can be
// read is not enough with TLS: tickets or a farewell may lie before it.
func hungUp(socket syscall.RawConn) bool {
	var info [4]byte // the state and what follows; the call is one for any four bytes
	var err error
	closed := socket.Control(func(fd uintptr) {
		info, err = syscall.GetsockoptInet4Addr(int(fd), syscall.IPPROTO_TCP, syscall.TCP_INFO)
	})
	return closed != nil || err == nil && (info[0] == stateClose || info[0] == stateCloseWait)
}
