// Package whatif decides requests as a sidecar does, on a virtual clock: the same rules, engine and memory store, put
// together for tests of rules and replays of logs. It opens no connection and waits for nothing.
package whatif

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/rules"
	"github.com/spillway-mesh/spillway/store/memory"
)

// Config is what a Trial decides by. Paths must be given.
type Config struct {
	Paths        []string // rule files and folders, together one rule set
	MergeDomains bool     // several files may add to one domain
	MaxBytes     int64    // memory that counters take at most; 0: no bound
	MaxKeys      int      // counters that are kept at most; 0: as many as MaxBytes allows
}

// Trial is one rule set at work. One goroutine may use it at a time. Its clock begins at the epoch, and At moves it.
type Trial struct {
	Load   rules.Load // what came of loading the rules, with its warnings
	now    time.Time
	keys   *identity.KeySets
	memory *memory.Memory
	engine *engine.Engine
	fault  any // the first panic
}

// ErrFault is the error of a request that could not be decided because the program is at fault.
var ErrFault = errors.New("deciding a request failed")

// Unloadable is the error of rules that cannot be used, with all that is wrong with them.
type Unloadable struct{ Load rules.Load }

// Error lists every problem, one per line.
func (u *Unloadable) Error() string { return u.Load.Text() }

// keptKeys is more counters than fit into any memory that is allowed them.
const keptKeys = 1 << 40

// Read loads rules without running them. The error is an *Unloadable when they can be read and cannot be used.
func Read(cfg rules.FilesConfig, paths ...string) (rules.Load, error) {
	load := rules.Read(cfg, paths...)
	if load.Err == nil && load.Rejected() {
		return load, &Unloadable{load}
	}
	return load, load.Err
}

// New loads the rules. The error is an *Unloadable when they can be read and cannot be used.
func New(cfg Config) (*Trial, error) {
	t := &Trial{now: time.Unix(0, 0).UTC()}
	t.keys = identity.NewKeySets(identity.KeySetsConfig{Transport: offline{}})
	files := rules.FilesConfig{MergeDomains: cfg.MergeDomains}
	files.Compile = descriptors.Options{Now: t.clock, Identity: func(_ string, of *identity.Config) *identity.Resolver {
		return identity.New(*of, t.keys, identity.Options{Now: t.clock})
	}}
	var err error
	t.Load, err = Read(files, cfg.Paths...)
	if err != nil {
		t.keys.Close()
		return nil, err
	}
	if cfg.MaxKeys == 0 {
		cfg.MaxKeys = keptKeys
	}
	t.memory = memory.New(memory.Config{Keys: cfg.MaxKeys, Bytes: cfg.MaxBytes, Now: t.clock})
	t.engine = engine.New(engine.Config{Store: t.memory, Now: t.clock, Hold: func(time.Duration) {},
		OnPanic: func(fault any) {
			if t.fault == nil {
				t.fault = fault
			}
		}})
	t.engine.Use(t.Load.Set)
	return t, nil
}

// Close gives back what New took.
func (t *Trial) Close() error {
	err := t.engine.Close()
	t.keys.Close()
	return err
}

func (t *Trial) clock() time.Time { return t.now }

// At moves the clock to an instant, and reports whether it did: it never goes back.
func (t *Trial) At(instant time.Time) bool {
	if instant.Before(t.now) {
		return false
	}
	t.now = instant
	return true
}

// Now returns the instant at which the next request is decided.
func (t *Trial) Now() time.Time { return t.now }

// Decide fills v with what req gets now. An error means that the program is at fault.
func (t *Trial) Decide(req *descriptors.Request, v *engine.Verdict) error {
	t.engine.Decide(context.Background(), req, v)
	if t.fault != nil {
		return fmt.Errorf("%w: %v", ErrFault, t.fault)
	}
	return nil
}

// Rules returns the rule set in use.
func (t *Trial) Rules() *descriptors.Set { return t.Load.Set }

// Stats is what the memory store has counted.
func (t *Trial) Stats() memory.Stats { return t.memory.Stats() }

// Domain returns the domain that requests are for: the one that was asked for, else the only one that there is.
func (t *Trial) Domain(asked string) (string, error) {
	names := t.Load.Set.Domains()
	switch {
	case asked == "" && len(names) == 1:
		return names[0], nil
	case asked == "":
		return "", fmt.Errorf("the rules have %d domains: name one of %q", len(names), names)
	case t.Load.Set.Domain(asked) == nil:
		return "", fmt.Errorf("the rules have no domain %q: name one of %q", asked, names)
	}
	return asked, nil
}

// offline refuses every fetch, so that key sets at a URL stay empty. Those in files are read.
type offline struct{}

var errOffline = errors.New("key sets are not fetched here: name who asks by user, tenant and tier")

// RoundTrip refuses.
func (offline) RoundTrip(*http.Request) (*http.Response, error) { return nil, errOffline }
