package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/rules"
)

const (
	firstLoad   = 2 * time.Second         // how long serving waits for the first load of the rules
	firstStore  = 500 * time.Millisecond  // how long serving waits for connections to the shared store
	drainFor    = 3200 * time.Millisecond // how long calls in flight may take once the sidecar stops
	greetWithin = 200 * time.Millisecond  // how long new connections have for their greeting once the sidecar stops
	streamsEnd  = 100 * time.Millisecond  // how long watchers of health have to receive that it stops
	hardStop    = 200 * time.Millisecond  // how long handlers have to notice that their connection was cut
	lastAnswers = 400 * time.Millisecond  // how long calls over HTTP may take at the very end
	waitsEnd    = 200 * time.Millisecond  // how long before calls are cut throttled answers have to leave
)

// Run serves until ctx ends, then drains: health fails first, then calls in flight end, and it returns within four
// seconds and DRAIN_DELAY, also where a call hangs. It returns nil unless a server broke. It may be called once.
func (s *Sidecar) Run(ctx context.Context) error {
	applyMemory(s.cfg.Memory, os.DirFS("/"), s.reports.log)
	watch, stop := context.WithCancel(context.WithoutCancel(ctx))
	watched := s.watchRules(ctx, watch)
	defer watched.Wait()
	defer stop()
	s.awaitStore(ctx)
	broke := s.serve()
	s.ready()
	var err error
	select {
	case <-ctx.Done():
	case err = <-broke:
		s.reports.log.Error("a server broke, stopping", "error", err)
	}
	s.drain()
	return err
}

// watchRules follows the rules until watch ends. It returns after the first attempt to load them, so that a sidecar
// that starts under load admits no request by mistake, unless a source keeps it waiting or ctx ends.
func (s *Sidecar) watchRules(ctx, watch context.Context) *sync.WaitGroup {
	var done sync.WaitGroup
	patience := time.NewTimer(firstLoad)
	defer patience.Stop()
	var first []<-chan struct{}
	if s.updates.xds != nil {
		first = append(first, s.watchSource(watch, &done, fromXDS, s.updates.xds, s.updates.xdsTried))
	}
	if s.updates.files != nil {
		first = append(first, s.watchSource(watch, &done, fromFiles, s.updates.files, nil))
	}
	for _, loaded := range first {
		select {
		case <-loaded:
		case <-patience.C:
			s.reports.log.Warn("rules take long to load; serving without them meanwhile")
			return &done
		case <-ctx.Done():
			return &done
		}
	}
	return &done
}

// watchSource follows one source of rules. The channel is closed after its first load, or when failed is.
func (s *Sidecar) watchSource(watch context.Context, done *sync.WaitGroup, from origin, source rules.Source,
	failed <-chan struct{}) <-chan struct{} {
	loaded, first := context.WithCancel(watch)
	done.Go(func() {
		defer first()
		err := source.Watch(watch, func(load rules.Load) {
			s.publish(from, load)
			first()
		})
		if err != nil && watch.Err() == nil {
			s.reports.log.Error("rules are no longer watched", "error", err)
		}
	})
	if failed != nil {
		done.Go(func() {
			select {
			case <-failed:
				first()
			case <-loaded.Done():
			}
		})
	}
	return loaded.Done()
}

// awaitStore waits for connections to the shared store, so that the first requests find them. It does not wait for a
// store that is known to be away.
func (s *Sidecar) awaitStore(ctx context.Context) {
	if s.counts.redis == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, firstStore)
	defer cancel()
	s.counts.redis.Ready(ctx)
	s.counts.profiles.Ready(ctx)
}

// serve starts all servers. The channel gets the first error of one.
func (s *Sidecar) serve() <-chan error {
	broke := make(chan error, 1)
	start := func(name string, l net.Listener, serve func(net.Listener) error) {
		if l == nil {
			return
		}
		go func() {
			err := serve(l)
			if err == nil || errors.Is(err, http.ErrServerClosed) || errors.Is(err, grpc.ErrServerStopped) {
				return
			}
			select {
			case broke <- fmt.Errorf("serve %s: %w", name, err):
			default:
			}
		}()
	}
	start("gRPC", s.serving.sockets.grpc, s.serving.grpc.Serve)
	start("gRPC on a Unix socket", s.serving.sockets.uds, s.serving.grpc.Serve)
	for i, l := range []net.Listener{s.serving.sockets.http, s.serving.sockets.debug, s.serving.sockets.metrics} {
		if i < len(s.serving.http) {
			start("HTTP", l, s.serving.http[i].Serve)
		}
	}
	return broke
}

// announce logs what an operator should know before anything is served.
func (s *Sidecar) announce() {
	for _, line := range s.cfg.Warnings {
		s.reports.log.Warn(line) //nolint:sloglint // the line names a variable
	}
	if s.cfg.Redis.URL == "" {
		s.reports.log.Info("no REDIS_URL: counting in memory, alone")
	} else {
		s.reports.log.Info("counting in redis", whereRedis(&s.cfg)...)
	}
	a := s.Addresses()
	args := []any{"grpc", a.GRPC, "http", a.HTTP, "debug", a.Debug}
	if a.UDS != "" {
		args = append(args, "uds", a.UDS)
	}
	if a.Metrics != "" {
		args = append(args, "metrics", a.Metrics)
	}
	s.reports.log.Info("listening", args...)
}

// ready logs that requests are served, and prints how to send one.
func (s *Sidecar) ready() {
	if why := s.unready(); why != "" {
		s.reports.log.Warn("serving, but not ready", "reason", why)
		return
	}
	set := s.counts.engine.Rules()
	if set == nil {
		s.reports.loadLog.Error("every request is admitted until there are good rules; RULES_REQUIRED=true keeps a " +
			"sidecar without rules out of service")
	}
	s.reports.log.Info("ready")
	if set == nil || strings.EqualFold(s.cfg.Log.Format, "json") {
		return
	}
	domain, entries, ok := set.Sample()
	if ok {
		fmt.Fprintf(s.cfg.Output, "try: curl -i http://%s/json -d %s\n", s.Addresses().HTTP, shellJSON(domain, entries))
	}
}

// shellJSON is a request as JSON, as a shell takes it.
func shellJSON(domain string, entries []descriptors.Entry) string {
	type entry struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	}
	type descriptor struct {
		Entries []entry `json:"entries"`
	}
	request := struct {
		Domain      string       `json:"domain"`
		Descriptors []descriptor `json:"descriptors"`
	}{domain, []descriptor{{}}}
	for _, e := range entries {
		request.Descriptors[0].Entries = append(request.Descriptors[0].Entries, entry(e))
	}
	text, _ := json.Marshal(request) // texts alone can always be written
	return "'" + strings.ReplaceAll(string(text), "'", `'\''`) + "'"
}

// drain stops serving: probes fail, DRAIN_DELAY passes, calls in flight end, then the ports close.
func (s *Sidecar) drain() {
	began := time.Now()
	s.drained.Store(&began)
	s.reports.log.Info("draining", "delay", s.cfg.Listen.DrainDelay.String())
	s.serving.health.Shutdown()
	s.serving.probes.Drain()
	s.counts.engine.Drain(began.Add(s.cfg.Listen.DrainDelay + drainFor - waitsEnd))
	time.Sleep(s.cfg.Listen.DrainDelay)
	s.stopGRPC()
	s.counts.engine.Drain(time.Now().Add(lastAnswers - waitsEnd))
	ctx, cancel := context.WithTimeout(context.Background(), lastAnswers)
	defer cancel()
	var done sync.WaitGroup
	for _, server := range s.serving.http {
		done.Go(func() {
			err := server.Shutdown(ctx)
			if err != nil {
				s.reports.log.Warn("a call over HTTP took too long and was cut off", "error",
					errors.Join(err, server.Close()))
			}
		})
	}
	done.Wait()
	s.reports.log.Info("stopped")
}

// stopGRPC asks clients to go elsewhere and waits for calls in flight, then cuts what is left. A handler that never
// returns does not hold it up.
func (s *Sidecar) stopGRPC() {
	graceful := make(chan struct{})
	go func() {
		defer close(graceful)
		s.serving.grpc.GracefulStop()
	}()
	s.serving.clients.Hurry(greetWithin)
	streams := time.AfterFunc(streamsEnd, s.serving.endStream)
	defer streams.Stop()
	cut := time.NewTimer(drainFor)
	defer cut.Stop()
	select {
	case <-graceful:
		return
	case <-cut.C:
	}
	s.reports.log.Warn("calls are still in flight, cutting them off", "after", drainFor.String())
	hard := make(chan struct{})
	go func() {
		defer close(hard)
		s.serving.grpc.Stop()
	}()
	last := time.NewTimer(hardStop)
	defer last.Stop()
	select {
	case <-hard:
	case <-last.C:
	}
}
