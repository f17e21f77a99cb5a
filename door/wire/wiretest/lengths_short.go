//go:build !full || race

package wiretest

const short = true
