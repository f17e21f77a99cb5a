//go:build !full || race

package journal

// manyIdentities is how many identities a flood has.
const manyIdentities = 200_000
