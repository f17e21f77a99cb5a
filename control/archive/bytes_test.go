package archive

import (
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

// BenchmarkBytesOfAnEvent archives a day of 200,000 events of 100,000 users at random, and reports what a row takes
// in a file. docs/explain/sizing.md calculates with it.
func BenchmarkBytesOfAnEvent(b *testing.B) {
	for b.Loop() {
		w := newWorld(b, servers.StartPostgres(b), "bytes", false)
		w.partition("2026-05")
		w.fill("2026-05", 1, 200_000, "a-1")
		w.exec(`UPDATE events SET at = at + random() * interval '400 milliseconds', latency = random() * 5,
		  identity = 'user:' || substr(md5((random() * 100000)::int::text), 1, 16),
		  ip = '198.51.' || (random() * 255)::int || '.' || (random() * 255)::int,
		  endpoint = '/items/' || (random() * 10000)::int,
		  sequence = sequence + (random() * 1000)::int * 1000000`)
		done := w.once()
		b.ReportMetric(float64(done.Bytes)/float64(done.Rows), "bytes/row")
	}
}
