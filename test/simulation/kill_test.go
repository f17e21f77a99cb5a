package simulation

import (
	"context"
	"net"
	"os"
	"sync/atomic"
)

// plug is what a sidecar is connected to the network by. Out of it, its process is gone as far as others can see.
type plug struct {
	out  atomic.Bool
	dial dialer
}

func (p *plug) connect(ctx context.Context, network, to string) (net.Conn, error) {
	if p.out.Load() {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrClosed}
	}
	return p.dial(ctx, network, to)
}

// kill ends a sidecar as by SIGKILL, and later starts another one in its place.
func (w *world) kill(i, by int) {
	w.mu.Lock()
	w.killed[i] += by
	victim, killed := w.all[i], w.killed[i]
	w.mu.Unlock()
	switch {
	case by > 0 && killed == 1:
		w.mu.Lock()
		w.all[i] = nil
		w.mu.Unlock()
		w.plugs[i].out.Store(true)
		for _, to := range w.places {
			w.network.link(place(i), to).resetAll()
		}
		w.remains.Go(func() { _ = victim.Close() }) // nothing of it reaches anyone
	case by < 0 && killed == 0:
		fresh := w.sidecar(i)
		w.mu.Lock()
		w.all[i] = fresh
		w.processes[i]++
		w.mu.Unlock()
	}
}

// processOf is how many processes a sidecar had before its present one.
func (w *world) processOf(i int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.processes[i]
}
