package main

import (
	"context"
	"runtime"
	"time"
)

// pace sends the time at which a call is due as soon as it has come. It sleeps on a thread of its own: the timers of
// the Go runtime may be late by a millisecond.
func pace(ctx context.Context, rate float64, length time.Duration, due func(at time.Time)) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	sharpenTimers()
	begin := time.Now()
	for i := 0; ctx.Err() == nil; i++ {
		after := time.Duration(float64(i) / rate * float64(time.Second))
		if after >= length {
			return
		}
		at := begin.Add(after)
		for left := time.Until(at); left > 0; left = time.Until(at) {
			sleepThread(left)
		}
		due(at)
	}
}
