package main

import "syscall"

// childAttributes puts a child into a process group of its own, and kills it when the thread that starts it ends.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
