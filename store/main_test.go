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
	// The client library looks once a second whether a server that was away is back, and notices only then that it was closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}
