//go:build !race

package servers

// buildFlags are those of `go build` for the sidecar under test.
var buildFlags = []string{"-buildvcs=false"}
