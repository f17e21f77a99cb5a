//go:build full && !race

package journal

// manyIdentities is how many identities a flood has.
const manyIdentities = 1_000_000
