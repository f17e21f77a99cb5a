package servers

import "syscall"

// childAttributes returns the attributes of a child in a process group of its own, which dies with the thread that starts it.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
