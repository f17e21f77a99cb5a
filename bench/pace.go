package main

import (
	"context"
	"runtime"
	"syscall"
	"time"
)

// steady is a context whose deadline is always the same time ahead. Like Envoy's calls, each call then has a grpc-timeout header, with
// one and the same text, for which the server sets a timer; it never runs out.
type steady struct{ context.Context }

// Deadline is in 200 seconds: grpc-go writes times of this size in whole milliseconds, rounded up, so the text does not vary.
func (steady) Deadline() (time.Time, bool) { return time.Now().Add(200 * time.Second), true }

// pace sends the times at which calls are due, each when it has come, and closes the channel at the end. It sleeps on a thread of its
// own: the timers of the Go runtime may be late by a millisecond.
func pace(ctx context.Context, rate float64, length time.Duration, due chan<- time.Time) {
	defer close(due)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const setTimerSlack = 29
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setTimerSlack, 1, 0) // where it fails, calls are late by 50 µs
	begin := time.Now()
	for i := 0; ctx.Err() == nil; i++ {
		after := time.Duration(float64(i) / rate * float64(time.Second))
		if after >= length {
			return
		}
		at := begin.Add(after)
		for left := time.Until(at); left > 0; left = time.Until(at) {
			sleep := syscall.NsecToTimespec(int64(left))
			_ = syscall.Nanosleep(&sleep, nil) // fails when a signal ends it early; then it goes on
		}
		select {
		case due <- at:
		case <-ctx.Done():
		}
	}
}
