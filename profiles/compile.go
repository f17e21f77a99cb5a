package profiles

import (
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// Compile returns the limit in the terms of the rules, or why it cannot be one.
func (l Limit) Compile() (descriptors.Limit, error) {
	one := descriptors.Limit{Limit: limit.Limit{Name: l.Name, Count: l.Count, Window: l.Per, Burst: l.Burst}}
	switch {
	case l.Unlimited:
		return descriptors.Limit{Unlimited: true, Limit: limit.Limit{Name: l.Name}}, nil
	case l.Month: // the windows are the months of a calendar
		one.Algorithm, one.CalendarUnit, one.Burst = limit.FixedWindow, descriptors.CalendarMonth, 0
		one.Window = one.CalendarUnit.Length()
	default:
		one.Algorithm, _ = limit.ParseAlgorithm(l.Algorithm) // an unknown one does not pass the check
	}
	return one, one.Validate()
}
