package store

import (
	"context"
	"sync"
)

// background is goroutines that Close waits for.
type background struct {
	ctx     context.Context // ends when Close begins
	cancel  context.CancelFunc
	onPanic func(fault any)

	mu      sync.Mutex // held where running grows, so that this does not happen while wait waits
	running sync.WaitGroup
}

func (b *background) start(onPanic func(fault any)) {
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.onPanic = onPanic
}

// run calls a function beside the caller, with a context that ends when Close begins. After that it does nothing.
func (b *background) run(do func(ctx context.Context)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil {
		return
	}
	b.running.Go(func() {
		defer func() {
			if fault := recover(); fault != nil {
				b.onPanic(fault)
			}
		}()
		do(b.ctx)
	})
}

// end lets no further function begin, and ends the context of those under way.
func (b *background) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cancel()
}
