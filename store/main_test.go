package store

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain also is the other processes of the exactness test, which start this binary again.
func TestMain(m *testing.M) {
	if os.Getenv(contenderVar) != "" {
		contend()
		return
	}
	goleak.VerifyTestMain(m)
}
