package archive

import (
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

// BenchmarkBytesOfAnEvent archives a day of 200,000 events of a thousand users, and reports what a row takes in a file.
// docs/explain/sizing.md calculates with it.
func BenchmarkBytesOfAnEvent(b *testing.B) {
	for b.Loop() {
		w := newWorld(b, servers.StartPostgres(b), "bytes", false)
		w.partition("2026-05")
		w.fill("2026-05", 1, 200_000, "a-1")
		done := w.once()
		b.ReportMetric(float64(done.Bytes)/float64(done.Rows), "bytes/row")
	}
}
