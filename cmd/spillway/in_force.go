package main

import "net/http"

// force is whether a change is in force, and, if not, what has to come first.
type force struct {
	is   bool
	once string
}

// forceOf reads the header of a control's answer; nil: it is not about a change.
func forceOf(h http.Header) *force {
	is := h.Get("spillway-in-force")
	if is == "" {
		return nil
	}
	return &force{is == "true", h.Get("spillway-in-force-once")}
}

// fill adds it to an object that is printed.
func (f *force) fill(o object) {
	if f == nil || o == nil {
		return
	}
	o["in_force"] = f.is
	if !f.is {
		o["in_force_once"] = f.once
	}
}

// keep remembers whether a change is in force, until it is printed.
func (s *session) keep(a *answer) {
	if a.force != nil {
		s.force = a.force
	}
}

// forced adds to what a change has made whether it is in force, and returns it.
func (s *session) forced(o object) object {
	s.force.fill(o)
	s.force = nil
	return o
}

// waits is the line about a change that is not in force yet, empty for none.
func waits(o object) string {
	if o["in_force"] != false {
		return ""
	}
	return "kept; in force once " + plain(text(o, "in_force_once"))
}
