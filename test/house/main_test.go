// Package house tests the tree itself: its map, its budgets, its pages and what is written from the code.
package house

import (
	"fmt"
	"os"
	"testing"
)

// TestMain runs the tests at the top of the tree.
func TestMain(m *testing.M) {
	err := os.Chdir("../..")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
