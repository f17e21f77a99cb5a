//go:build !linux

package main

import "syscall"

// childAttributes returns the attributes of a child in a process group of its own. Only Linux ends it where this process is killed.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
