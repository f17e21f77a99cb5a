// Package leader chooses one control of several, by an advisory lock of PostgreSQL, and runs the tasks that one alone
// may run. It is the one place that takes such a lock for a whole session.
package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	leaderLock   = 7_269_310_517_334_085 // number of the advisory lock that the leader holds
	channel      = "spillway"            // of notifications about changes
	lookEvery    = time.Second           // for the lock, and for changes whose notification was lost
	retryAfter   = time.Second           // after a task has returned
	unlockWithin = time.Second
)

// ErrHeld means that another session holds the lock.
var ErrHeld = errors.New("another one holds the lock")

// Connect makes a session of its own, beside all pools: a lock lives as long as its session.
type Connect func(context.Context) (*pgx.Conn, error)

// Task is what the leader does all the time.
type Task struct {
	Name string
	// Run does what there is to do, until ctx ends at most. After an error it runs again in a second; after nil when
	// the database has changed, or in a second. A task that does not return in between may wait for changed itself.
	Run func(ctx context.Context, changed <-chan struct{}) error
}

// Config sets up a Leader. Ready and Begin may be nil.
type Config struct {
	Connect Connect
	Ready   func(context.Context) error // fails while this program must not lead, such as on another schema
	Begin   func()                      // is called when this control has begun to lead, before its tasks
	Log     *slog.Logger
}

// Status is how a leader does.
type Status struct {
	Leads    bool
	Waits    bool              // another control leads
	Problems map[string]string // of tasks, by name; that of the leader itself has the name "leader"
}

// Problem is the problems of all tasks together; empty: all do well.
func (s *Status) Problem() string {
	var all []string
	for _, task := range slices.Sorted(maps.Keys(s.Problems)) {
		all = append(all, task+": "+s.Problems[task])
	}
	return strings.Join(all, "\n")
}

// Leader runs its tasks while it leads. Make one with New.
type Leader struct {
	cfg   Config
	tasks []Task

	mu     sync.Mutex // guards status
	status Status
}

// New makes a Leader that does not lead yet.
func New(cfg Config, tasks ...Task) *Leader {
	return &Leader{cfg: cfg, tasks: tasks, status: Status{Problems: map[string]string{}}}
}

// Run leads, or waits until it may, until ctx ends.
func (l *Leader) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := l.term(ctx)
		if err != nil {
			l.set(false, false)
		}
		if ctx.Err() == nil {
			l.Note("leader", err)
		}
		Pause(ctx, lookEvery)
	}
}

// Status is how it does now.
func (l *Leader) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.status
	now.Problems = maps.Clone(now.Problems)
	return now
}

// Note keeps what is wrong with a task, nil for nothing, and logs it where it is new.
func (l *Leader) Note(task string, err error) {
	l.mu.Lock()
	before := l.status.Problems[task]
	delete(l.status.Problems, task)
	if err != nil {
		l.status.Problems[task] = err.Error()
	}
	l.mu.Unlock()
	if err != nil && before != err.Error() {
		l.cfg.Log.Warn("a task of the control fails and is tried again", "task", task, "error", err)
	}
}

// set notes whether this control leads, or another one does.
func (l *Leader) set(leads, waits bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if waits || leads != l.status.Leads {
		clear(l.status.Problems) // those of a leader, which it is no more
	}
	l.status.Leads, l.status.Waits = leads, waits
}

// term is one time of leading: from getting the lock until the session that holds it is lost. It returns nil where
// another one leads.
func (l *Leader) term(ctx context.Context) error {
	if l.cfg.Ready != nil {
		err := l.cfg.Ready(ctx)
		if err != nil {
			return err
		}
	}
	conn, err := open(ctx, l.cfg.Connect, leaderLock)
	if errors.Is(err, ErrHeld) {
		l.set(false, true)
		return nil
	}
	if err != nil {
		return err
	}
	defer release(ctx, conn, leaderLock)
	_, err = conn.Exec(ctx, `LISTEN `+channel) // before a task reads anything, so that no change is missed
	if err != nil {
		return fmt.Errorf("listen for changes: %w", err)
	}
	if l.cfg.Begin != nil {
		l.cfg.Begin()
	}
	l.set(true, false)
	l.cfg.Log.Info("this control leads")
	err = l.lead(ctx, conn)
	l.set(false, false)
	l.cfg.Log.Warn("this control leads no longer", "error", err)
	return err
}

// lead runs the tasks until the session is lost, and waits for them.
func (l *Leader) lead(ctx context.Context, conn *pgx.Conn) error {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	var changes []chan struct{}
	for _, task := range l.tasks {
		changed := make(chan struct{}, 1)
		changes = append(changes, changed)
		running.Go(func() { l.repeat(ctx, task, changed) })
	}
	for {
		err := await(ctx, conn)
		if err != nil {
			return err
		}
		for _, changed := range changes {
			select {
			case changed <- struct{}{}:
			default: // it is about to look anyway
			}
		}
	}
}

// repeat runs a task again and again.
func (l *Leader) repeat(ctx context.Context, task Task, changed <-chan struct{}) {
	for ctx.Err() == nil {
		err := task.Run(ctx, changed)
		if ctx.Err() != nil {
			return
		}
		l.Note(task.Name, err)
		if err != nil {
			Pause(ctx, retryAfter)
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// await waits for a notification, or a second, and finds out whether the session still lives.
func await(ctx context.Context, conn *pgx.Conn) error {
	wait, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	_, err := conn.WaitForNotification(wait)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil || !errors.Is(wait.Err(), context.DeadlineExceeded) {
		return err
	}
	alive, stop := context.WithTimeout(ctx, 2*lookEvery)
	defer stop()
	return conn.Ping(alive)
}

// Pause waits, until ctx ends at most.
func Pause(ctx context.Context, length time.Duration) {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
