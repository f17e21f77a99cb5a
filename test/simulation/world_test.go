package simulation

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/rules"
	"github.com/spillway-mesh/spillway/sidecar"
	"github.com/spillway-mesh/spillway/sidecar/settings"
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
	leases    *leases
	ledger    *ledger

	crews atomic.Int64 // goroutines of the simulation itself
	changing
}

// changing is what goroutines change.
type changing struct {
	mu         sync.Mutex         // guards all below
	all        []*sidecar.Sidecar // nil: it was killed
	killed     []int              // faults that keep each sidecar dead
	processes  []int              // that each sidecar had before its present one
	version    int                // of the rules
	calls      []*call
	lives      []life
	over       bool // the bubble has ended
	violations []string
	clocks     [][]learned // by sidecar; see learnClocks
	before     int         // goroutines before the first fault
}

// place is a sidecar's name in the network.
func place(i int) string { return fmt.Sprintf("sidecar-%d", i) }

func (w *world) since() time.Duration { return time.Since(w.began) }

// begin makes the world. It is called in the bubble.
func begin(t *testing.T, s *scenario, folder string, traced bool) *world {
	w := &world{T: t, s: s, began: time.Now(), network: newNetwork(s.stream(ofNetwork))}
	w.trace = &trace{world: w, on: traced}
	w.leases = &leases{world: w, of: map[string]*lease{}}
	w.ledger = &ledger{world: w, runs: map[string]int{}, most: map[string]int{}}
	w.lives = []life{{}}
	w.readRules(folder)
	w.build()
	w.plugs, w.killed, w.processes = make([]*plug, s.sidecars), make([]int, s.sidecars), make([]int, s.sidecars)
	for i := range s.sidecars {
		w.all = append(w.all, w.sidecar(i))
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
