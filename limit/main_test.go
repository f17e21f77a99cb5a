package limit_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain keeps rapid from leaving files behind: what failed is in the log, with its seed.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("rapid.nofailfile", "true"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
