//go:build full

package servers

// Full reports whether tests run at full length, with bounds on real time: make test-all builds with the tag full.
const Full = true
