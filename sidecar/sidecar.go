package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/audit"
	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/connlimit"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/door"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/extauthz"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/journal"
	"github.com/spillway-mesh/spillway/peers"
	"github.com/spillway-mesh/spillway/records"
	"github.com/spillway-mesh/spillway/rlsvc"
	"github.com/spillway-mesh/spillway/rules"
	"github.com/spillway-mesh/spillway/rules/xds"
	"github.com/spillway-mesh/spillway/sidecar/settings"
	"github.com/spillway-mesh/spillway/store"
	"github.com/spillway-mesh/spillway/store/memory"
	"github.com/spillway-mesh/spillway/telemetry"
)

// Sidecar is one sidecar: made by New, which opens its sockets; Run serves until it is told to stop; Close releases all
// that New took. Neither Redis nor rules need to be there.
type Sidecar struct {
	cfg       settings.Config
	world     World
	log       *slog.Logger
	loadLog   *slog.Logger // shows every line, also those of a load that fails as the last one did
	level     *slog.LevelVar
	secrets   telemetry.Secrets // which no line of the log shows
	telemetry *telemetry.Telemetry
	tracer    *telemetry.Tracer      // nil: no traces
	decisions *telemetry.DecisionLog // nil: decisions are not logged
	observer  *telemetry.Observer
	budget    budget
	engine    *engine.Engine
	files     *rules.Files  // nil: none are read
	xds       *xds.Source   // nil: there is no management server
	xdsTried  chan struct{} // closed when the first attempt to reach it failed
	xdsOnce   sync.Once
	keys      *identity.KeySets
	forget    func()                       // what a change of the rules makes stale
	serves    func(domains []string)       // which domains there are rules for
	ping      func(context.Context) string // why Redis does not answer, or nothing; nil without Redis
	connected func(context.Context)        // waits for connections to the shared store; nil: there is none
	breaker   func() breaker.State         // of Redis; nil without Redis
	servers   func() []store.ServerStats   // of Redis; nil without Redis
	abouts    abouts                       // what the servers of Redis are
	records   *records.Book
	peers     *peers.Peers     // nil without Redis
	journal   *journal.Journal // nil: nothing is recorded
	top       *audit.Top       // nil: there is none
	feed      audit.Feed
	stopping  chan struct{} // closed when the debug port begins to stop
	started   time.Time
	inUse     atomic.Pointer[rulesInUse] // nil: there are no rules yet
	loads     loads
	rls       *rlsvc.Service
	authz     *extauthz.Service
	probes    *admin.Health
	health    *health.Server
	grpc      *grpc.Server
	http      []*http.Server
	sockets   listeners
	clients   *connlimit.Limit
	streams   context.Context // ends when streaming calls have to
	endStream context.CancelFunc
	drained   atomic.Pointer[time.Time] // when stopping began

	closing  sync.Once
	cleanups []cleanup
	closed   error
}

// cleanup gives one thing back.
type cleanup struct {
	name string
	run  func() error
}

// Addresses are where a sidecar listens, with real ports; empty where it does not.
type Addresses struct{ GRPC, UDS, HTTP, Debug, Metrics string }

// New assembles a sidecar and opens its sockets. It fails on what only an operator can mend: a socket that is taken,
// certificates that cannot be read.
func New(cfg settings.Config) (*Sidecar, error) { return NewIn(World{}, cfg) }

// assemble is New with a store of the caller's; nil makes the one that cfg asks for.
func assemble(cfg settings.Config, world World, counter engine.Counter) (*Sidecar, error) {
	s := &Sidecar{
		cfg: cfg, world: world, started: time.Now().UTC(), stopping: make(chan struct{}),
		forget: func() {}, serves: func([]string) {},
	}
	if cfg.Admin.TopKeys > 0 {
		s.top = audit.NewTop(cfg.Admin.TopKeys, time.Now)
	}
	s.streams, s.endStream = context.WithCancel(context.Background())
	s.defers("streams", func() error { s.endStream(); return nil })
	for _, step := range []func() error{
		s.startLog,
		s.startStatsd,
		s.startTracing,
		s.startDecisionLog,
		func() error { return s.openStore(counter) },
		s.openSockets,
		s.secureDebug,
		s.openDoors,
	} {
		err := step()
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	s.announce()
	return s, nil
}

// defers adds what Close does, the last added first.
func (s *Sidecar) defers(name string, run func() error) {
	s.cleanups = append(s.cleanups, cleanup{name, run})
}

// Close gives back everything, in the reverse order of taking it. It may be called more than once.
func (s *Sidecar) Close() error {
	s.closing.Do(func() {
		for i := len(s.cleanups) - 1; i >= 0; i-- {
			c := s.cleanups[i]
			err := c.run()
			if err != nil {
				s.closed = errors.Join(s.closed, fmt.Errorf("close %s: %w", c.name, err))
			}
		}
	})
	return s.closed
}

// startLog makes the log and the metrics.
func (s *Sidecar) startLog() error {
	if s.cfg.Output == nil {
		s.cfg.Output = os.Stdout
	}
	level, err := settings.Level(s.cfg.Log.Level)
	if err != nil {
		return fmt.Errorf("LOG_LEVEL: %w", err)
	}
	s.level = new(slog.LevelVar)
	s.level.Set(level)
	s.secrets.Add(s.cfg.Secrets()...)
	lines := &telemetry.Lines{Out: s.cfg.Output}
	s.cfg.Output = lines
	log := telemetry.LogConfig{Out: lines, Level: s.level, JSON: strings.EqualFold(s.cfg.Log.Format, "json"), Secrets: &s.secrets}
	s.log = telemetry.NewLogger(log)
	log.Every = true
	s.loadLog = telemetry.NewLogger(log)
	s.telemetry = telemetry.New(telemetry.Config{
		NearLimitRatio: s.cfg.Metrics.NearRatio, Labels: s.cfg.Metrics.PrometheusLabels(), Version: s.cfg.Version,
	})
	s.telemetry.Lines(lines)
	s.observer = s.telemetry.Observer(s.log)
	return nil
}

// openStore makes the engine with the store that the configuration asks for.
func (s *Sidecar) openStore(counter engine.Counter) error {
	s.budget = budgetOf(s.cfg.Memory, os.DirFS("/"))
	cfg := engine.Config{
		Clock: engine.NewClock(time.Now), Shadow: s.cfg.Answer.Shadow, Quota: s.cfg.Answer.Quota, Waiters: s.cfg.Store.Waiters,
		ReservedBytes: s.budget.reserved, OnOverAdmitted: s.observer.OverAdmitted, OnPanic: s.observer.Panicked,
	}
	var shared *store.Redis
	if counter == nil && s.cfg.Redis.URL != "" {
		var err error
		shared, err = s.openRedis()
		if err != nil {
			return err
		}
		counter, cfg.Live = shared, shared.Live
	}
	s.openRecords(shared)
	cfg.Records = known{s.records}
	s.openMemory(&cfg, counter)
	s.openKeys()
	err := s.openRecord(shared)
	if err != nil {
		return err
	}
	s.observe(&cfg)
	s.engine = engine.New(cfg)
	s.defers("engine", s.engine.Close)
	s.telemetry.Engine(s.engine.Stats)
	err = s.openRules(shared)
	if err != nil {
		return err
	}
	s.openPeers(shared)
	return nil
}

// openKeys makes the key sets, which the rules' resolvers share.
func (s *Sidecar) openKeys() {
	s.keys = identity.NewKeySets(identity.KeySetsConfig{OnRefresh: s.observer.KeysLoaded, Bytes: s.budget.tokens})
	s.defers("key sets", func() error { s.keys.Close(); return nil })
	s.telemetry.Identity(s.keys.Stats)
}

// openMemory makes the store in memory. It counts everything, or beside a shared store the local shares, by the shared store's clock.
func (s *Sidecar) openMemory(cfg *engine.Config, shared engine.Counter) {
	counts, role := memory.Config{Keys: s.cfg.Store.MaxKeys, Bytes: s.budget.counters}, "main"
	if shared != nil {
		counts.Now, role = cfg.Clock.Now, "share"
	}
	own := memory.New(counts)
	s.telemetry.Memory(role, own.Stats)
	if shared == nil {
		cfg.Store = own
		return
	}
	cfg.Store, cfg.Share = shared, own
}

// openRules makes the sources of the rules. Beside a management server files are read
// only where RULES names them, and published rules only where it says redis: the reference server reads none there, and its deployments leave RUNTIME_ROOT set.
func (s *Sidecar) openRules(shared *store.Redis) error {
	cfg := filesConfig(&s.cfg)
	cfg.Compile.Identity = func(domain string, of *identity.Config) *identity.Resolver {
		return identity.New(*of, s.keys, identity.Options{Keys: s.keysOf(domain)})
	}
	if _, published := s.cfg.Rules.Sources(); published && shared != nil {
		cfg.Published, cfg.Guard = s.readPublished(shared), shared.Client().Guard
	}
	if !s.cfg.Rules.FromXDS() || cfg.Path != "" || cfg.Published != nil {
		s.files = rules.NewFiles(cfg)
	}
	return s.openXDS(&cfg)
}

// filesConfig is where the rules are, in the terms of package rules.
func filesConfig(c *settings.Config) rules.FilesConfig {
	path, published := c.Rules.Sources()
	root := c.Rules.Root
	if published {
		root = ""
	}
	return rules.FilesConfig{
		Path: path, RuntimeRoot: root, RuntimeSubdirectory: c.Rules.Subdirectory, RuntimeAppDirectory: c.Rules.AppDirectory,
		IgnoreDotFiles: c.Rules.IgnoreDots, WatchRoot: c.Rules.WatchRoot, MergeDomains: c.Rules.Merge,
		SpareDenied: c.Rules.SpareDenied,
		Compile:     descriptors.Options{KeyPrefix: c.Store.KeyPrefix, KeySecret: []byte(c.Store.KeySecret)},
	}
}

// openSockets listens everywhere, before anything is served.
func (s *Sidecar) openSockets() error {
	sockets, err := listen(&s.cfg, s.world.Listen)
	if err != nil {
		return err
	}
	s.sockets = sockets
	s.defers("sockets", func() error { sockets.close(); return nil })
	s.openLimit()
	return nil
}

// answerWithin bounds how slowly a client may read an answer over HTTP.
const answerWithin = 15 * time.Second

// openDoors makes the servers.
func (s *Sidecar) openDoors() error {
	server, err := s.newServer()
	if err != nil {
		return err
	}
	s.grpc = server
	// Its workers run from the start. Stop waits for calls, and the end of the sidecar does not.
	s.defers("gRPC", func() error { go server.Stop(); return nil })
	s.rls = s.register(server)
	api, err := s.api(s.rls)
	if err != nil {
		return err
	}
	s.probes = &admin.Health{Degraded: s.degraded, Unready: s.unready}
	pages := admin.Debug{
		Rules: s.engine.Rules, Stats: s.telemetry.Text, Metrics: s.metrics(), Level: s.logLevel(), API: api,
	}
	public := admin.ForPrograms(admin.Public(s.probes, s.traceJSON(s.rls.JSON())))
	s.http = []*http.Server{
		admin.Server(public, admin.ProbeHeaders, answerWithin),
		admin.Server(admin.ForOwnPages(pages.Handler(), s.cfg.Listen.DebugHost), admin.Headers, 0),
	}
	s.http[1].RegisterOnShutdown(func() { close(s.stopping) })
	if s.sockets.metrics != nil {
		host, _, _ := net.SplitHostPort(s.cfg.Metrics.Addr) // it was listened on
		metrics := admin.ForOwnPages(admin.Metrics(s.cfg.Metrics.Path, s.metrics()), host)
		s.http = append(s.http, admin.Server(metrics, admin.ProbeHeaders, answerWithin))
	}
	for _, server := range s.http {
		server.ErrorLog = admin.Complaints(s.log)
	}
	return nil
}

// register makes the doors of a gRPC server, and returns the one that is also behind /json.
func (s *Sidecar) register(server grpc.ServiceRegistrar) *rlsvc.Service {
	a, intake := s.cfg.Answer, door.NewIntake(s.cfg.Listen.MaxMessage, s.budget.messages)
	door := rlsvc.New(rlsvc.Config{
		Engine: s.engine, Intake: intake, LimitHeaders: a.Headers, LimitHeader: a.LimitHeader, RemainingHeader: a.RemainingHeader,
		ResetHeader: a.ResetHeader, DynamicMetadata: a.Metadata, Quota: a.Quota, Plain: strings.EqualFold(a.Style, "reference"), OnPanic: s.observer.Panicked,
	})
	door.Register(server)
	s.authz = extauthz.New(extauthz.Config{Engine: s.engine, Intake: intake, DefaultDomain: s.cfg.Rules.DefaultDomain, OnPanic: s.observer.Panicked})
	s.authz.Register(server)
	return door
}

// metrics serves them, unless they are off.
func (s *Sidecar) metrics() http.Handler {
	if s.cfg.Metrics.Disabled {
		return http.NotFoundHandler()
	}
	return s.telemetry.Handler()
}

// Addresses tells where the sidecar listens.
func (s *Sidecar) Addresses() Addresses { return s.sockets.addresses() }

// Reload reads the rules of files again.
func (s *Sidecar) Reload() {
	if s.files != nil {
		s.files.Reload()
	}
}

// degraded names what does not work as it should.
func (s *Sidecar) degraded() []string {
	parts := s.loadsDegraded()
	if s.ping != nil {
		if reason := s.observer.StoreDegraded(s.ping, s.breaker()); reason != "" {
			parts = append(parts, "redis: "+reason)
		}
	}
	parts = append(parts, s.abouts.tooOld()...)
	if s.clients.Full() {
		parts = append(parts, "connections: some were closed to make room")
	}
	for _, set := range s.keys.Status() {
		if set.Err != nil {
			parts = append(parts, fmt.Sprintf("jwks: %s: %d keys in use", set.Source, set.Keys))
		}
	}
	return parts
}
