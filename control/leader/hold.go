package leader

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
)

// Hold calls f while a session holds the lock of that number. It fails with ErrHeld where another session holds it. The
// context of f ends where the session is lost: the lock may be another one's then.
func Hold(ctx context.Context, connect Connect, lock int64, f func(context.Context) error) error {
	conn, err := open(ctx, connect, lock)
	if err != nil {
		return err
	}
	defer release(ctx, conn, lock)
	inner, stop := context.WithCancelCause(ctx)
	var beside sync.WaitGroup
	beside.Go(func() {
		for inner.Err() == nil {
			err := await(inner, conn)
			if err != nil {
				stop(fmt.Errorf("the session that holds the lock is lost: %w", err))
			}
		}
	})
	err = f(inner)
	lost := context.Cause(inner)
	stop(nil)
	beside.Wait()
	if err != nil && lost != nil && ctx.Err() == nil {
		return lost
	}
	return err
}

// open makes a session that holds the lock, or fails with ErrHeld.
func open(ctx context.Context, connect Connect, lock int64) (*pgx.Conn, error) {
	conn, err := connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	var mine bool
	err = conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, lock).Scan(&mine)
	if err == nil && !mine {
		err = ErrHeld
	}
	if err != nil {
		_ = conn.Close(context.WithoutCancel(ctx)) // nothing is lost
		return nil, err
	}
	return conn, nil
}

// release gives the lock back and closes the session. PostgreSQL may see only later that a session is closed.
func release(ctx context.Context, conn *pgx.Conn, lock int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockWithin)
	defer cancel()
	_, _ = conn.Exec(ctx, `SELECT pg_advisory_unlock($1)`, lock) // without a connection the lock is gone as well
	_ = conn.Close(ctx)
}
