package replay

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
)

// benchLog writes a log of n lines, in Istio's JSON or Envoy's text, of some users and many addresses.
func benchLog(b *testing.B, format string, n int) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "access.log")
	file := must.Get(os.Create(path))(b)
	defer file.Close()
	random := rand.New(rand.NewPCG(1, 2))
	paths := []string{"/", "/search?q=shoes", "/login", "/reports/2026", "/v2/search", "/cart/17/items"}
	when := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for i := range n {
		when = when.Add(time.Duration(random.IntN(2000)) * time.Microsecond)
		stamp := when.Add(-time.Duration(random.IntN(50)) * time.Millisecond).Format("2006-01-02T15:04:05.000Z")
		address := fmt.Sprintf("10.%d.%d.%d", random.IntN(4), random.IntN(256), random.IntN(256))
		path := paths[random.IntN(len(paths))]
		user := fmt.Sprintf("u%d", int(random.ExpFloat64()*2000))
		if format == "text" {
			fmt.Fprintf(file, "[%s] \"GET %s HTTP/1.1\" 200 - 0 512 12 11 %q \"Mozilla/5.0 (X11; Linux x86_64)\" "+
				"\"%032x\" \"shop.example\" \"10.1.1.1:8080\"\n", stamp, path, address, i)
			continue
		}
		fmt.Fprintf(file, `{"start_time":%q,"method":"GET","path":%q,"protocol":"HTTP/1.1","response_code":200,`+
			`"response_flags":"-","bytes_received":0,"bytes_sent":512,"duration":12,`+
			`"upstream_service_time":"11","x_forwarded_for":%q,"user_agent":"Mozilla/5.0 (X11; Linux `+
			`x86_64)","request_id":"%032x","authority":"shop.example",`+
			`"upstream_host":"10.1.1.1:8080","upstream_cluster":"outbound|80||shop",`+
			`"downstream_remote_address":"%s:4711","user":%q}`+"\n", stamp, path, address, i, address, user)
	}
	return path
}

// BenchmarkReplay replays a log of 200,000 lines on one core; lines/cpu-s is by the time that the process had of it,
// and heap-MiB the most that the heap held.
func BenchmarkReplay(b *testing.B) {
	const lines = 200_000
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, format := range []string{"json", "text"} {
		for _, against := range []bool{false, true} {
			name := format
			cfg := Config{Rules: []string{"../../examples/rules/shop.yaml"}}
			if against {
				name += "-against"
				cfg.Against = cfg.Rules
			}
			b.Run(name, func(b *testing.B) {
				cfg.Logs = []string{benchLog(b, format, lines)}
				most := uint64(0)
				cfg.OnProgress = func(Progress) { most = max(most, held()) }
				began := processor()
				for b.Loop() {
					r, err := Run(cfg)
					if err != nil || r.Log.Requests != lines {
						b.Fatalf("%d requests: %v", r.Log.Requests, err)
					}
				}
				b.ReportMetric(float64(lines)*float64(b.N)/(processor()-began).Seconds(), "lines/cpu-s")
				b.ReportMetric(float64(most)/(1<<20), "heap-MiB")
			})
		}
	}
}

// held is what the heap holds now, garbage included.
func held() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// processor is the time of processors that the process has used.
func processor() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
