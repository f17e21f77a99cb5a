//go:build !race

package extauthz

// rounds is how many random messages a differential test tries.
const rounds = 30_000
