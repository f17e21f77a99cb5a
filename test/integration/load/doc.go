// Package load asks sidecars as fast as clients can while Redis is well. Every limit stays exact, Redis makes every
// decision, and no breaker opens: with many clients at once, on a cold start, beside busy loops, and when the sidecar
// itself is stopped for a moment. The tests count admissions and decisions. They do not bound times.
//
// They take long and judge time, so they have the build tag full: make test-all runs them.
package load
