//go:build !race

package rlsvc

// rounds is how many random messages a differential test tries.
const rounds = 60_000
