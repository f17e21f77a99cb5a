package xds

import (
	"context"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/spillway-mesh/spillway/rules"
)

// keeper decides about responses and keeps the set that is in use from one stream to the next. One goroutine owns it.
type keeper struct {
	source  *Source
	publish func(rules.Load)

	inUse   *world      // nil: none was accepted yet
	pending *world      // accepted, and removes domains that are in use; nil: none
	settle  *time.Timer // ends when pending is to be published

	refused digest        // of the last refused response
	gap     time.Duration // wait before the next refusal; 0: none was refused since the last accepted one
}

func newKeeper(s *Source, publish func(rules.Load)) *keeper {
	k := &keeper{source: s, publish: publish, settle: time.NewTimer(time.Hour)}
	k.settle.Stop()
	return k
}

func (k *keeper) close() { k.settle.Stop() }

// begin forgets what belongs to the stream before. A refused response is refused at once by the first answer of a new
// stream.
func (k *keeper) begin() { k.gap = 0 }

// next returns the next response, and publishes what is pending meanwhile. It returns false when ctx ends.
func (k *keeper) next(ctx context.Context, responses <-chan received) (received, bool) {
	for {
		select {
		case <-ctx.Done():
			return received{}, false
		case <-k.settle.C:
			k.settled()
		case r := <-responses:
			return r, true
		}
	}
}

// rest waits until the timer ends, and publishes what is pending meanwhile. It returns false when ctx ends first.
func (k *keeper) rest(ctx context.Context, pause *time.Timer) bool {
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-k.settle.C:
			k.settled()
		case <-pause.C:
			return true
		}
	}
}

const (
	leastGap = 20 * time.Millisecond // from one response to the next
	idleness = 4                     // how much longer the sidecar rests after a response than it worked on it
	mostRest = 5 * time.Second
	mostGap  = 5 // the longest wait before a refusal, in the first one
)

// handle answers one response. It returns after a rest that keeps a server that sends without end from taking more than
// a fifth of a core.
func (k *keeper) handle(ctx context.Context, st *stream, r *discoveryv3.DiscoveryResponse) error {
	began := time.Now()
	k.source.note(func(s *Status) { s.Responses++ })
	w := k.source.take(r)
	worked := time.Since(began)
	var err error
	if w.set == nil {
		err = k.refuse(ctx, st, r, w)
	} else {
		k.accept(w)
		err = st.accept(r)
	}
	if err == nil {
		k.rest(ctx, time.NewTimer(min(mostRest, max(leastGap, idleness*worked))))
	}
	return err
}

// refuse sends a NACK. The server answers it with the same response at once, so all but the first one wait: the same
// content longer each time.
func (k *keeper) refuse(ctx context.Context, st *stream, r *discoveryv3.DiscoveryResponse, w *world) error {
	fresh := w.digest != k.refused
	k.refused = w.digest
	reason := w.reason()
	k.source.note(func(s *Status) { s.Newest, s.Refused = shorten(w.version, maxVersion), reason })
	if fresh {
		k.publish(rules.Load{Problems: w.problems, Files: w.resources})
	}
	if k.gap > 0 && !k.rest(ctx, time.NewTimer(k.gap)) {
		return ctx.Err()
	}
	first := k.source.cfg.RefuseGap
	k.gap = min(2*k.gap, mostGap*first)
	if fresh || k.gap == 0 {
		k.gap = first
	}
	k.source.note(func(s *Status) { s.Refusals++ })
	return st.refuse(r, reason)
}

// accept takes a world into use: at once, or, where it removes domains, once no other one follows. A server that has
// just started may send one part of its resources after the other.
func (k *keeper) accept(w *world) {
	k.gap, k.refused = 0, digest{}
	k.source.note(func(s *Status) {
		s.Version, s.Accepted, s.Resources, s.Refused = shorten(w.version, maxVersion), time.Now(), w.resources, ""
		s.Newest = s.Version
	})
	if k.inUse != nil && w.digest == k.inUse.digest {
		k.pending = nil
		k.settle.Stop()
		return
	}
	if k.inUse.loses(w) {
		if k.pending == nil {
			k.settle.Reset(k.source.cfg.Settle)
		}
		k.pending = w
		return
	}
	k.use(w)
}

// settled publishes what is pending.
func (k *keeper) settled() {
	if k.pending != nil {
		k.use(k.pending)
	}
}

func (k *keeper) use(w *world) {
	k.pending = nil
	k.settle.Stop()
	k.inUse = w
	k.publish(rules.Load{Set: w.set, Problems: w.problems, Files: w.resources, Hash: w.hash()})
}

// loses reports whether a domain of w is not in the other one.
func (w *world) loses(other *world) bool {
	if w == nil {
		return false
	}
	for _, name := range w.set.Domains() {
		if other.set.Domain(name) == nil {
			return true
		}
	}
	return false
}
