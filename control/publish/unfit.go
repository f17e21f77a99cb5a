package publish

import (
	"log/slog"
	"sync"

	"github.com/spillway-mesh/spillway/control/database"
)

// maxUnfit is how many rows are remembered that were logged.
const maxUnfit = 1000

// source is where records are read from. A row that cannot be a record, because a statement wrote it past the API, is left out: it must not hold up all others.
type source struct {
	database.Querier
	unfit func(error) // is told of it
}

// unfit logs rows that are left out, each of them once.
type unfit struct {
	log    *slog.Logger
	mu     sync.Mutex // guards logged
	logged map[string]bool
}

func newUnfit(log *slog.Logger) *unfit { return &unfit{log: log, logged: map[string]bool{}} }

// note logs what is wrong with a row. Where there are many such rows, it forgets which it has logged, and logs them again.
func (u *unfit) note(err error) {
	text := err.Error()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.logged[text] {
		return
	}
	if len(u.logged) >= maxUnfit {
		clear(u.logged)
	}
	u.logged[text] = true
	u.log.Warn("publish: a row of the database cannot be read: "+text, "instead", "it is left out: correct the row")
}
