package publish

import (
	"log/slog"
	"sync"
)

// maxLogged is how many rows are remembered that were logged.
const maxLogged = 1000

// leftOut logs rows that cannot be profiles, because a statement wrote them past the API, each of them once. They are
// left out: they must not hold up all others.
type leftOut struct {
	log    *slog.Logger
	mu     sync.Mutex // guards logged
	logged map[string]bool
}

func newLeftOut(log *slog.Logger) *leftOut { return &leftOut{log: log, logged: map[string]bool{}} }

// note logs what is wrong with a row. Where there are many such rows, it forgets which it has logged, and logs them
// again.
func (u *leftOut) note(err error) {
	text := err.Error()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.logged[text] {
		return
	}
	if len(u.logged) >= maxLogged {
		clear(u.logged)
	}
	u.logged[text] = true
	u.log.Warn("a row of the database cannot be published: it is left out", "error", err)
}
