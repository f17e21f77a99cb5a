package leader

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Main(m)) }

// connectTo makes sessions of a database.
func connectTo(postgres *servers.Postgres) Connect {
	return func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, postgres.URL) }
}

// lead runs a leader until the test ends, or until stop is called.
func lead(t *testing.T, cfg Config, tasks ...Task) (l *Leader, stop func()) {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	l = New(cfg, tasks...)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { l.Run(ctx); close(ended) }()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return l, stop
}

func awaits(t *testing.T, what string, is func() bool) {
	t.Helper()
	servers.Await(t, what, func() error {
		if !is() {
			return errors.New("not yet")
		}
		return nil
	})
}

// TestOneOfTwoLeads starts two leaders. The second one leads when the first has ended, and its task runs only then.
func TestOneOfTwoLeads(t *testing.T) {
	connect := connectTo(servers.Database(t))
	ran := make(chan string, 1000)
	task := func(name string) Task {
		return Task{Name: name, Run: func(context.Context, <-chan struct{}) error { ran <- name; return nil }}
	}
	first, stop := lead(t, Config{Connect: connect}, task("first"))
	awaits(t, "the first leader", func() bool { return first.Status().Leads })
	second, _ := lead(t, Config{Connect: connect}, task("second"))
	awaits(t, "the second one to wait", func() bool { return second.Status().Waits })
	stop()
	for len(ran) > 0 {
		if one := <-ran; one != "first" {
			t.Errorf("the task of the %s leader ran beside another leader", one)
		}
	}
	awaits(t, "the second leader", func() bool { return second.Status().Leads })
	if one := <-ran; one != "second" {
		t.Errorf("the task of the %s leader ran", one)
	}
}

// TestAChangeDuringTheFirstRunIsNotMissed notifies while a task runs for the first time: it runs once more.
func TestAChangeDuringTheFirstRunIsNotMissed(t *testing.T) {
	connect := connectTo(servers.Database(t))
	inside, leave, runs := make(chan struct{}), make(chan struct{}), make(chan struct{}, 1000)
	first := true
	lead(t, Config{Connect: connect}, Task{Name: "one", Run: func(context.Context, <-chan struct{}) error {
		if first {
			first = false
			close(inside)
			<-leave
			return nil
		}
		runs <- struct{}{}
		return nil
	}})
	<-inside
	conn := must.Get(connect(t.Context()))(t)
	defer conn.Close(context.Background())
	must.Get(conn.Exec(t.Context(), `NOTIFY spillway`))(t)
	close(leave)
	<-runs
}

// TestAProblemEndsWithTheNextSuccess shows the problem of a task until it runs without one, or another control leads.
func TestAProblemEndsWithTheNextSuccess(t *testing.T) {
	connect := connectTo(servers.Database(t))
	results := make(chan error)
	l, _ := lead(t, Config{Connect: connect},
		Task{Name: "one", Run: func(ctx context.Context, _ <-chan struct{}) error {
			select {
			case err := <-results:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}})
	results <- errors.New("Redis is away")
	awaits(t, "the problem", func() bool { s := l.Status(); return s.Problem() == "one: Redis is away" })
	results <- nil
	awaits(t, "the end of the problem", func() bool { s := l.Status(); return s.Problem() == "" })
}

// TestHold lets one of two hold a lock, and ends what it runs when its session is lost.
func TestHold(t *testing.T) {
	const lock = 42
	postgres := servers.Database(t)
	connect := connectTo(postgres)
	err := Hold(t.Context(), connect, lock, func(ctx context.Context) error {
		if err := Hold(ctx, connect, lock, func(context.Context) error { return nil }); !errors.Is(err, ErrHeld) {
			t.Errorf("a second one is answered %v, want that the lock is held", err)
		}
		conn, err := connect(ctx)
		if err != nil {
			return err
		}
		defer conn.Close(context.Background())
		_, err = conn.Exec(ctx,
			`SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = $1`, lock)
		if err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("what runs without its session ends with %v, want that the session is lost", err)
	}
	err = Hold(t.Context(), connect, lock, func(context.Context) error { return nil })
	if err != nil {
		t.Errorf("a lock that is free is refused: %v", err)
	}
}
