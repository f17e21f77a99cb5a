//go:build !linux

package main

import "syscall"

// childAttributes puts a child into a process group of its own. It may outlive this process: only Linux prevents that.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
