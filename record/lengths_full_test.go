//go:build full && !race

package record

// manyIdentities is how many identities a flood has.
const manyIdentities = 1_000_000
