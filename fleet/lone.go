package fleet

import (
	"errors"
	"syscall"
)

// loneWrite writes to a socket without waiting for it. One goroutine uses it at a time.
type loneWrite struct {
	out    []byte
	socket syscall.RawConn
	try    func(fd uintptr) bool // made once, because it would be allocated for each write
	n      int
	err    error
}

func newLoneWrite(socket syscall.RawConn) *loneWrite {
	w := &loneWrite{socket: socket}
	w.try = func(fd uintptr) bool {
		w.n, w.err = syscall.Write(int(fd), w.out)
		return true
	}
	return w
}

// write writes as much of out as the socket takes at once, and returns how much that is.
func (w *loneWrite) write() (int, error) {
	err := w.socket.Write(w.try)
	if err != nil {
		return 0, err
	}
	if errors.Is(w.err, syscall.EAGAIN) || errors.Is(w.err, syscall.EINTR) {
		return 0, nil
	}
	return max(w.n, 0), w.err
}
