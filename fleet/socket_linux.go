package fleet

import "syscall"

// readable reports whether the socket holds something to read, or its end.
func readable(socket syscall.RawConn) bool {
	if socket == nil {
		return false
	}
	var some bool
	err := socket.Control(func(fd uintptr) {
		var one [1]byte
		_, _, fault := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		some = fault != syscall.EAGAIN && fault != syscall.EINTR
	})
	return err == nil && some
}
