package fleet

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain wants every connection's goroutines to end.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
