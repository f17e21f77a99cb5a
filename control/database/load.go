package database

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/httpapi"
)

const (
	lineMost   = 64 << 10 // bytes of a line
	linesNamed = 100      // wrong lines that an answer names
	mergesMost = 10       // of one load, where blocks interrupt it
)

// Loaded is what a load of users did.
type Loaded struct {
	Lines     int64 `json:"lines"`     // users that the body names
	Made      int64 `json:"made"`      // that were not there before
	Changed   int64 `json:"changed"`   // that were otherwise before
	Unchanged int64 `json:"unchanged"` // that were the same before
}

// userLine is one user of a load.
type userLine struct {
	Name string `json:"name"`
	UserRequest
}

// wrongLine is what is wrong with one line. Those behind it can be read.
type wrongLine struct {
	line int64
	what string
}

// Error names the line.
func (w *wrongLine) Error() string { return fmt.Sprintf("line %d: %s", w.line, w.what) }

// UserLines reads users for a COPY. It leaves out the lines that are wrong, and keeps what is wrong with them.
type UserLines struct {
	next  func() (line int64, u userLine, err error) // io.EOF at the end
	line  int64
	user  userLine
	read  int64
	wrong []string // the first ones
	count int64    // of wrong ones
	err   error
}

// NewUserLines reads lines one by one.
func NewUserLines(next func() (int64, userLine, error)) *UserLines { return &UserLines{next: next} }

// Next reads up to the next line that is right.
func (l *UserLines) Next() bool {
	for {
		var bad *wrongLine
		l.line, l.user, l.err = l.next()
		if l.err == nil {
			bad = l.user.check(l.line)
		}
		switch {
		case errors.Is(l.err, io.EOF):
			l.err = nil
			return false
		case l.err != nil && !errors.As(l.err, &bad):
			return false
		case bad == nil:
			l.read++
			return true
		}
		l.refuse(bad.line, bad.what)
	}
}

// Values is the line as a row.
func (l *UserLines) Values() ([]any, error) {
	u := &l.user
	return []any{l.line, u.Name, u.Tier, u.QuotaHour, u.QuotaDay, u.QuotaMonth, u.Burst}, nil
}

// Err is why the lines cannot be read to their end.
func (l *UserLines) Err() error { return l.err }

// refuse notes what is wrong with a line.
func (l *UserLines) refuse(line int64, what string) {
	l.count++
	if len(l.wrong) < linesNamed {
		l.wrong = append(l.wrong, (&wrongLine{line, what}).Error())
	}
}

// problem is all that is wrong, or nil.
func (l *UserLines) problem() error {
	if l.count == 0 {
		return nil
	}
	more := ""
	if l.count > int64(len(l.wrong)) {
		more = fmt.Sprintf("\nand %d more", l.count-int64(len(l.wrong)))
	}
	return httpapi.NewProblem(http.StatusUnprocessableEntity, "nothing was loaded; wrong lines: %d\n%s%s", l.count,
		strings.Join(l.wrong, "\n"), more)
}

// check returns what is wrong with a user, or nil.
func (u *userLine) check(line int64) *wrongLine {
	var wrong string
	switch {
	case u.Name == "" || len(u.Name) > 1024:
		wrong = "the name must have 1 to 1024 bytes"
	case !keepable(u.Name) || u.Tier != nil && !keepable(*u.Tier):
		wrong = "the name and the tier must be UTF-8 without NUL"
	case u.Burst != nil && u.QuotaHour == nil:
		wrong = "burst needs quota_hour"
	default:
		wrong = u.checkNumbers()
	}
	if wrong == "" {
		return nil
	}
	return &wrongLine{line, wrong}
}

// keepable reports whether the database can keep a text.
func keepable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

// checkNumbers returns what is wrong with quotas, or nothing.
func (u *userLine) checkNumbers() string {
	for i, n := range []*int64{u.QuotaHour, u.QuotaDay, u.QuotaMonth, u.Burst} {
		if n != nil && *n < 1 {
			return loadColumns[i+2] + " must be a whole number from 1"
		}
	}
	return u.checkQuotas()
}

// LoadUsers makes users what lines hold, all of them or, where one of the lines is wrong, none. Users that no line
// names stay. The audit gets one line for all of them.
//
// The lines are copied into a table of a connection of its own, which ends with the load: it may take half an hour, and
// holds no lock that another needs before all lines are there and right.
func (d *DB) LoadUsers(ctx context.Context, by Actor, domain string, lines *UserLines) (done *Loaded, err error) {
	conn, err := pgx.ConnectConfig(ctx, d.unhurried())
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is lost
	err = copyLines(ctx, conn, lines)
	if err == nil {
		err = checkLines(ctx, conn, domain, lines)
	}
	if err == nil {
		err = makeDomain(ctx, conn, by, domain)
	}
	if err != nil {
		return nil, err
	}
	return mergeUntilDone(ctx, conn, by, domain, lines.read)
}

// mergeUntilDone merges the lines, and begins again where a block interrupted it. The blocks that wait go first.
func mergeUntilDone(
	ctx context.Context, conn *pgx.Conn, by Actor, domain string, read int64,
) (done *Loaded, err error) {
	for range mergesMost {
		err = write(ctx, conn, by, "load", func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SET LOCAL application_name = '`+mergeName+`'`)
			if err == nil {
				done, err = mergeLines(ctx, tx, domain, read)
			}
			return err
		})
		if sqlCode(err) != CodeCanceled || ctx.Err() != nil {
			return done, err
		}
		select {
		case <-time.After(blockLockWithin):
		case <-ctx.Done():
		}
	}
	return nil, httpapi.NewProblem(http.StatusServiceUnavailable,
		"blocks of users of this load came in between %d times, and nothing was loaded: try again", mergesMost)
}

// copyLines copies the lines into a table of the session.
func copyLines(ctx context.Context, conn *pgx.Conn, lines *UserLines) error {
	_, err := conn.Exec(ctx, `CREATE TEMPORARY TABLE loading (line bigint, name text, tier text,
	  quota_hour bigint, quota_day bigint, quota_month bigint, burst bigint)`)
	if err == nil {
		_, err = conn.Exec(ctx, `SET spillway.log = 'off'; SET work_mem = '64MB'`)
	}
	if err != nil {
		return err
	}
	_, err = conn.CopyFrom(ctx, pgx.Identifier{"loading"}, append([]string{"line"}, loadColumns...), lines)
	if err == nil {
		_, err = conn.Exec(ctx, `ANALYZE loading`)
	}
	if lines.err != nil && ctx.Err() == nil {
		return bodyProblem(lines.err)
	}
	if err != nil {
		return err
	}
	return lines.problem()
}

// bodyProblem is why a body cannot be read to its end, as a caller sees it.
func bodyProblem(err error) error {
	var own *httpapi.Problem
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &large):
		return httpapi.NewProblem(http.StatusRequestEntityTooLarge,
			"the body has more than %d bytes, and nothing was loaded: load it in parts", large.Limit)
	}
	return httpapi.NewProblem(http.StatusBadRequest,
		"the body cannot be read to its end, and nothing was loaded: %v", err)
}

// checkLines refuses names that are there twice, and tiers that do not exist.
func checkLines(ctx context.Context, conn *pgx.Conn, domain string, lines *UserLines) error {
	for _, check := range []struct{ what, sql string }{
		{"the name %q is there more than once", `SELECT max(line), name FROM loading WHERE $1 <> ''
		  GROUP BY name HAVING count(*) > 1 ORDER BY 1`},
		{"there is no tier %q", `SELECT min(line), tier FROM loading l WHERE tier IS NOT NULL
		  AND NOT EXISTS (SELECT FROM tiers t WHERE t.domain = $1 AND t.name = l.tier) GROUP BY tier ORDER BY 1`},
	} {
		rows, err := conn.Query(ctx, check.sql, domain)
		if err != nil {
			return err
		}
		var line int64
		var name string
		_, err = pgx.ForEachRow(rows, []any{&line, &name}, func() error {
			lines.refuse(line, fmt.Sprintf(check.what, name))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return lines.problem()
}

// mergeLines makes the users what the lines hold. It locks none of those that are so already. The line of the audit has
// no name: the leader compares all users with Redis.
func mergeLines(ctx context.Context, tx pgx.Tx, domain string, read int64) (*Loaded, error) {
	done := &Loaded{Lines: read}
	err := tx.QueryRow(ctx, `WITH merged AS (
	  INSERT INTO profiles AS u (domain, name, tier, quota_hour, quota_day, quota_month, burst)
	  SELECT $1, l.name, l.tier, l.quota_hour, l.quota_day, l.quota_month, l.burst
	  FROM loading l LEFT JOIN profiles had ON had.domain = $1 AND had.kind = 'user' AND had.name = l.name
	  WHERE had.name IS NULL OR had.block_only OR (had.tier, had.quota_hour, had.quota_day, had.quota_month, had.burst)
	  IS DISTINCT FROM (l.tier, l.quota_hour, l.quota_day, l.quota_month, l.burst) ORDER BY l.name
	  ON CONFLICT (domain, kind, name) DO UPDATE SET tier = excluded.tier, quota_hour = excluded.quota_hour,
	  quota_day = excluded.quota_day, quota_month = excluded.quota_month, burst = excluded.burst
	  WHERE u.block_only OR (u.tier, u.quota_hour, u.quota_day, u.quota_month, u.burst)
	  IS DISTINCT FROM (excluded.tier, excluded.quota_hour, excluded.quota_day, excluded.quota_month, excluded.burst)
	  RETURNING xmax = 0 AS made)
	  SELECT count(*) FILTER (WHERE made), count(*) FILTER (WHERE NOT made) FROM merged`, domain,
	).Scan(&done.Made, &done.Changed)
	if err != nil {
		return nil, err
	}
	done.Unchanged = read - done.Made - done.Changed
	_, err = tx.Exec(ctx, `INSERT INTO audit (action, domain, kind, name, after, done_at)
	  VALUES ('load', $1, 'user', '', $2, CASE WHEN $3 THEN now() END)`, domain, done, done.Made+done.Changed == 0)
	return done, err
}
