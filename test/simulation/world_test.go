package simulation

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/rules"
	"github.com/spillway-mesh/spillway/settings"
	"github.com/spillway-mesh/spillway/sidecar"
)

const redisAddress = "redis:6379"

// world is one simulation: sidecars, their Redis, what goes wrong, and who calls.
type world struct {
	*testing.T
	s       *scenario
	began   time.Time
	network *network
	server  *server
	fleet   []*sidecar.Sidecar
	loads   []rules.Load // by the number of changes before
	trace   *trace
	ledger  *ledger

	mu         sync.Mutex // guards all below
	down       int        // faults that keep the server down
	calls      []*call
	lives      []time.Duration // when the server has lost everything
	over       bool            // the bubble has ended
	violations []string
	conns      []int // of each sidecar, before the first fault
}

// place is a sidecar's name in the network.
func place(i int) string { return fmt.Sprintf("sidecar-%d", i) }

func (w *world) since() time.Duration { return time.Since(w.began) }

// begin makes the world. It is called in the bubble.
func begin(t *testing.T, s *scenario, folder string, traced bool) *world {
	w := &world{T: t, s: s, began: time.Now(), network: newNetwork(s.stream(ofNetwork))}
	w.trace = &trace{world: w, on: traced}
	w.ledger = &ledger{world: w, runs: map[string]int{}}
	w.server = newServer(w.network, redisAddress)
	w.server.db.wrote = w.ledger.wrote
	w.server.onLost = func(where string) { w.trace.add("replies to %s are lost with their connection", where) }
	for i := range s.sidecars {
		l := w.network.link(place(i), redisAddress)
		l.up.latency, l.down.latency = s.latency, s.latency
	}
	w.readRules(folder)
	w.server.start()
	for i := range s.sidecars {
		w.fleet = append(w.fleet, w.sidecar(i, s.stream(ofBreakers+uint64(i)).Float64))
	}
	return w
}

// readRules reads the rules after each number of changes.
func (w *world) readRules(folder string) {
	versions := 1
	for _, d := range w.s.domains {
		versions = max(versions, 1+len(d.changes))
	}
	for n := range versions {
		at := filepath.Join(folder, fmt.Sprint(n))
		if err := os.MkdirAll(at, 0o755); err != nil {
			w.Fatal(err)
		}
		for name, text := range w.s.rules(n) {
			if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o600); err != nil {
				w.Fatal(err)
			}
		}
		load := rules.Read(rules.FilesConfig{}, at)
		if load.Err != nil || load.Rejected() {
			w.Fatalf("rules of seed %d: %v\n%s", w.s.seed, load.Err, rules.FormatProblems(load.Problems))
		}
		w.loads = append(w.loads, load)
	}
}

// sidecar assembles one as its program does, but for the servers of its doors: those are called with wire bytes.
func (w *world) sidecar(i int, random func() float64) *sidecar.Sidecar {
	environ := []string{"REDIS_URL=" + redisAddress, "LOG_LEVEL=error", "GOMEMLIMIT=200MiB", "PROMETHEUS_ENABLED=false"}
	cfg, err := settings.FromEnvironment(environ, "sidecar")
	if err != nil {
		w.Fatal(err)
	}
	cfg.Output = io.Discard
	var mu sync.Mutex
	s, err := sidecar.NewIn(sidecar.World{
		Dial:   w.network.dialer(place(i), 500*time.Millisecond),
		Listen: func(_, address string) (net.Listener, error) { return newListener(address), nil },
		Random: func() float64 {
			mu.Lock()
			defer mu.Unlock()
			return random()
		},
	}, cfg)
	if err != nil {
		w.Fatal(err)
	}
	s.UseRules(w.loads[0])
	return s
}

// run lets the load come and the faults happen, and then all be calm.
func (w *world) run() {
	var running sync.WaitGroup
	running.Go(func() {
		elapse(warm - 100*time.Millisecond)
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := range w.s.sidecars {
			w.conns = append(w.conns, w.network.count(place(i), redisAddress))
		}
	})
	for i := range w.s.faults {
		running.Go(func() { w.hurt(&w.s.faults[i]) })
	}
	running.Go(w.changeRules)
	ctx, stop := context.WithCancel(context.Background())
	for i := range w.s.loads {
		running.Go(func() { w.load(ctx, uint64(i), &w.s.loads[i]) })
	}
	elapse(w.s.lasts + calmFor - w.since())
	w.isCalm()
	stop()
	running.Wait()
}

// end closes everything. The bubble then waits for the goroutines to end, or reports those that do not.
func (w *world) end() {
	var closing sync.WaitGroup
	for _, s := range w.fleet {
		closing.Go(func() {
			if err := s.Close(); err != nil {
				w.Errorf("close a sidecar: %v", err)
			}
		})
	}
	closing.Wait()
	elapse(5 * time.Second) // the client library looks every second whether it was closed
	w.server.stop()
	elapse(time.Second)
	w.network.mu.Lock()
	defer w.network.mu.Unlock()
	if w.network.open != 0 {
		w.violation(nil, "%d ends of connections are open after all sidecars were closed", w.network.open)
	}
}

// changeRules brings other limits into use, in all sidecars at once.
func (w *world) changeRules() {
	r := w.s.stream(ofScenario + 50)
	for n := range w.loads[1:] {
		elapse(time.Duration((2 + 3*r.Float64()) * float64(time.Second)))
		w.trace.add("rules change, version %d", n+1)
		for _, s := range w.fleet {
			s.UseRules(w.loads[n+1])
		}
	}
}
