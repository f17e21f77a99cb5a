package simulation

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/rules"
	"github.com/spillway-mesh/spillway/settings"
	"github.com/spillway-mesh/spillway/sidecar"
)

// world is one simulation: sidecars, their Redis, what goes wrong, and who calls.
type world struct {
	*testing.T
	s         *scenario
	began     time.Time
	network   *network
	places    []string // the addresses of servers and sentinels
	servers   []*server
	slots     *slotMap // of a cluster
	quorum    *quorum  // of sentinels
	watchers  []*watcher
	plugs     []*plug        // of each sidecar; used by the faults alone
	remains   sync.WaitGroup // killed sidecars that end
	sentinels []*server
	loads     []rules.Load // by the number of changes before
	trace     *trace
	ledger    *ledger

	mu         sync.Mutex         // guards all below
	fleet      []*sidecar.Sidecar // nil: it was killed
	killed     []int              // faults that keep each sidecar dead
	processes  []int              // that each sidecar had before its present one
	version    int                // of the rules
	calls      []*call
	lives      []life
	over       bool // the bubble has ended
	violations []string
}

// place is a sidecar's name in the network.
func place(i int) string { return fmt.Sprintf("sidecar-%d", i) }

func (w *world) since() time.Duration { return time.Since(w.began) }

// begin makes the world. It is called in the bubble.
func begin(t *testing.T, s *scenario, folder string, traced bool) *world {
	w := &world{T: t, s: s, began: time.Now(), network: newNetwork(s.stream(ofNetwork))}
	w.trace = &trace{world: w, on: traced}
	w.ledger = &ledger{world: w, runs: map[string]int{}, most: map[string]int{}}
	w.lives = []life{{}}
	w.readRules(folder)
	w.build()
	w.plugs, w.killed, w.processes = make([]*plug, s.sidecars), make([]int, s.sidecars), make([]int, s.sidecars)
	for i := range s.sidecars {
		w.fleet = append(w.fleet, w.sidecar(i))
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
func (w *world) sidecar(i int) *sidecar.Sidecar {
	w.plugs[i] = &plug{dial: w.network.dialer(place(i), 500*time.Millisecond)}
	environ := append(w.environ(), "LOG_LEVEL=error", "GOMEMLIMIT=200MiB", "PROMETHEUS_ENABLED=false")
	cfg, err := settings.FromEnvironment(environ, "sidecar")
	if err != nil {
		w.Fatal(err)
	}
	cfg.Output = io.Discard
	s, err := sidecar.NewIn(sidecar.World{
		Dial:   w.plugs[i].connect,
		Listen: func(_, address string) (net.Listener, error) { return newListener(address), nil },
	}, cfg)
	if err != nil {
		w.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s.UseRules(w.loads[w.version])
	return s
}

// connections are those of a sidecar to all places.
func (w *world) connections(i int) (n int) {
	for _, to := range w.places {
		n += w.network.count(place(i), to)
	}
	return n
}

// run lets the load come and the faults happen, and then all be calm.
func (w *world) run() {
	var running sync.WaitGroup
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
		if s == nil {
			continue
		}
		closing.Go(func() {
			if err := s.Close(); err != nil {
				w.Errorf("close a sidecar: %v", err)
			}
		})
	}
	closing.Wait()
	w.remains.Wait()
	elapse(5 * time.Second) // the client library looks every second whether it was closed
	for _, s := range append(w.servers, w.sentinels...) {
		s.stop()
	}
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
		w.mu.Lock()
		w.version = n + 1
		all := slices.Clone(w.fleet)
		w.mu.Unlock()
		for _, s := range all {
			if s != nil {
				s.UseRules(w.loads[n+1])
			}
		}
	}
}
