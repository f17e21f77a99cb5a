//go:build race

package record

// manyIdentities is how many identities a flood has. The race detector makes each some ten times as slow.
const manyIdentities = 200_000
