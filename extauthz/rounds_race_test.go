//go:build race

package extauthz

// rounds is how many random messages a differential test tries. They run on one goroutine, so the race detector makes
// them slow and learns nothing from them.
const rounds = 2_000
