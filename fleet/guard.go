package fleet

import "errors"

// errPanicked is the error of a call whose reply made its reader panic.
var errPanicked = errors.New("the reply could not be read: a panic, which was reported")

// Guard runs what reads replies in the background. A panic is given to Config.OnPanic, and does not end the process.
func (f *Fleet) Guard(run func()) { guard(f.onPanic, run) }

func guard(onPanic func(fault any), run func()) {
	if onPanic == nil {
		run()
		return
	}
	defer func() {
		if fault := recover(); fault != nil {
			onPanic(fault)
		}
	}()
	run()
}
