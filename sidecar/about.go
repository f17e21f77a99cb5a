package sidecar

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/sidecar/settings"
)

const (
	aboutEvery  = time.Minute     // how often servers are asked what they are
	aboutRetry  = time.Second     // how soon again those that did not answer
	aboutWithin = 2 * time.Second // for one of them
	leastMajor  = 7               // of a Redis: its scripts need 7.0
)

// abouts is what is known about the servers of Redis. The zero value knows nothing.
type abouts struct {
	end     context.CancelFunc // nil: servers are not asked
	running sync.WaitGroup
	known   atomic.Pointer[map[string]aboutServer] // by the server's name
	wrong   atomic.Pointer[map[string]mistake]     // likewise, of servers that the settings are wrong for
	denied  atomic.Pointer[denial]
	wake    chan struct{} // the servers have to be asked now
}

// all are those that are known.
func (a *abouts) all() map[string]aboutServer {
	if known := a.known.Load(); known != nil {
		return *known
	}
	return nil
}

// stop ends what asks the servers.
func (a *abouts) stop() {
	if a.end != nil {
		a.end()
		a.running.Wait()
	}
}

// aboutServer is what one server is.
type aboutServer struct {
	version string // of Redis, or the one that a Valkey is compatible with
	valkey  string // version of Valkey; empty: it is a Redis
	mode    string // standalone, sentinel or cluster
	policy  string // of eviction, where the server evicts; empty: it does not, or the user may not ask
}

// tooOld names the servers that scripts cannot run on, for people.
func (a *abouts) tooOld() (all []string) {
	for name, s := range a.all() {
		if s.tooOld() {
			all = append(all, fmt.Sprintf("redis: %s is version %s, and must be at least %d.0", name, s.version,
				leastMajor))
		}
	}
	slices.Sort(all)
	return all
}

// tooOld reports whether scripts cannot run on the server.
func (s *aboutServer) tooOld() bool {
	head, _, _ := strings.Cut(s.version, ".")
	major, err := strconv.Atoi(head)
	return err == nil && s.valkey == "" && major < leastMajor
}

// watchAbout logs what the servers of Redis are, now and when that changes.
func (s *Sidecar) watchAbout(clients []*redis.Client) {
	ctx, end := context.WithCancel(context.Background())
	s.counts.abouts.end = end
	s.counts.abouts.running.Go(func() {
		for ctx.Err() == nil {
			next := aboutRetry
			clients[0].Guard(func() { next = s.askAbout(ctx, clients) })
			select {
			case <-time.After(next):
			case <-s.counts.abouts.wake:
			case <-ctx.Done():
			}
		}
	})
}

// askAbout asks all servers what they are, and returns when to ask again.
func (s *Sidecar) askAbout(ctx context.Context, clients []*redis.Client) (next time.Duration) {
	next = aboutEvery
	before, now := s.counts.abouts.all(), map[string]aboutServer{}
	wrong := map[string]mistake{}
	for i, c := range clients {
		for _, server := range c.Servers() {
			name := server.Name()
			known, there := before[name]
			one, err := aboutOf(ctx, server)
			if text := s.mistakeAt(ctx, i, server, one, err); text != "" {
				next, wrong[name] = aboutRetry, s.noteMistake(name, text, err)
			}
			switch {
			case err != nil:
				next, one = aboutRetry, known
			case one != known:
				s.logAbout(name, one)
			}
			if err == nil || there {
				now[name] = one
			}
		}
	}
	if err := s.counts.abouts.lately(); len(wrong) == 0 && redis.Reason(err) == redis.ReasonNoPerm {
		text := fmt.Sprintf("REDIS_AUTH: the user of the server lacks rights on it: %v", err)
		next, wrong["redis"] = aboutRetry, s.noteMistake("redis", text, err)
	}
	s.counts.abouts.known.Store(&now)
	s.counts.abouts.wrong.Store(&wrong)
	return next
}

// mistakeAt returns what is wrong with the settings of store i, as a server of it shows, or nothing.
func (s *Sidecar) mistakeAt(ctx context.Context, i int, server *redis.Server, about aboutServer, err error) string {
	named := s.cfg.Redises()[i]
	at, wrong := named.Target()
	if wrong != nil {
		return "" // the store would not have been opened
	}
	if err != nil {
		return mistakeOf(ctx, server, named.Prefix, at.Secured(), err)
	}
	text := mistaken(named.Prefix, about, at.Kind == settings.Sentinel)
	if text == "" && s.counts.abouts.suspect(server.Name()) {
		text = s.deeperMistake(ctx, i, server, at.Kind, about.mode)
	}
	return text
}

// aboutOf asks a server what it is. Where the user may not ask, nothing is known.
func aboutOf(ctx context.Context, server *redis.Server) (s aboutServer, err error) {
	ctx, cancel := context.WithTimeout(ctx, aboutWithin)
	defer cancel()
	reply, err := server.Run(ctx, "INFO")
	if err != nil && !redis.IsReply(err, "NOPERM") {
		return s, err
	}
	info := infoOf(reply)
	s.version, s.valkey = info["redis_version"], info["valkey_version"]
	s.mode = cmp.Or(info["redis_mode"], info["server_mode"]) // Valkey has the second
	if info["maxmemory"] != "0" && info["maxmemory_policy"] != "noeviction" {
		s.policy = info["maxmemory_policy"]
	}
	return s, nil
}

// infoOf is the fields of a reply to INFO.
func infoOf(reply any) map[string]string {
	text, _ := reply.(string)
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, found := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		if found {
			fields[name] = value
		}
	}
	return fields
}

// logAbout logs what a server is, and what an operator has to change about it.
func (s *Sidecar) logAbout(name string, about aboutServer) {
	if about.version == "" {
		return
	}
	s.reports.log.Info("redis is there", "server", name, "version", about.version, "valkey", about.valkey, "mode",
		about.mode)
	if about.tooOld() {
		s.reports.log.Error("redis is too old: its version must be at least 7.0", "server", name, "version",
			about.version)
	}
	if about.policy != "" {
		s.reports.log.Warn("redis evicts counters when its memory is full: set maxmemory-policy to noeviction",
			"server", name, "policy", about.policy)
	}
}
