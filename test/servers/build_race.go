//go:build race

package servers

// Race reports whether the test binary, and what it builds, have the race detector.
const Race = true

var buildFlags = []string{"-buildvcs=false", "-race"}
