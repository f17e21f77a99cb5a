package database

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	lockWithin      = time.Second            // a change waits for another one of the same thing
	blockLockWithin = 300 * time.Millisecond // a block does; between its attempts others have its connection
	blockAttempts   = 3
	tasksMost       = 4 // connections for tasks
	blocksReady     = 2 // connections for blocks that are open all the time: PostgreSQL may have no more later
)

// PoolSizes is how many connections to PostgreSQL a Database has at most for each kind of request, so that those that
// are slow or wait leave the others theirs. The zero value of a field is 8.
type PoolSizes struct {
	Changes, Reads, Blocks int
}

// openPool makes a pool of at most size connections, whose statements wait for a lock for that long.
func openPool(cfg *pgxpool.Config, size int, lock time.Duration) (*pgxpool.Pool, error) {
	cfg = cfg.Copy()
	cfg.MaxConns = 8
	if size > 0 {
		cfg.MaxConns = int32(size)
	}
	cfg.MinConns = min(cfg.MinConns, cfg.MaxConns)
	cfg.ConnConfig.RuntimeParams["lock_timeout"] = fmt.Sprint(lock.Milliseconds())
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return pool, nil
}

// beginner is a pool or a connection.
type beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// sqlCode is the code of an error of PostgreSQL, or nothing.
func sqlCode(err error) string {
	var wrong *pgconn.PgError
	if errors.As(err, &wrong) {
		return wrong.Code
	}
	return ""
}

// The codes of errors of statements that have waited, or run, too long.
const (
	CodeLockTimeout = "55P03"
	CodeDeadlock    = "40P01"
	CodeCanceled    = "57014" // by statement_timeout
)

// mergeName is the name of a session while it merges a load of users.
const mergeName = "spillway merge"
