package database

import (
	"context"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/records"
)

// User is a user of a domain.
type User struct {
	Domain        string     `json:"domain"`
	Name          string     `json:"name"`
	Tier          *string    `json:"tier"`
	QuotaHour     *int64     `json:"quota_hour"`
	QuotaDay      *int64     `json:"quota_day"`
	QuotaMonth    *int64     `json:"quota_month"`
	Burst         *int64     `json:"burst"` // of the quota per hour
	Blocked       bool       `json:"blocked"`
	BlockReason   string     `json:"block_reason"`
	BlockedUntil  *time.Time `json:"blocked_until"`
	LastRequestAt *time.Time `json:"last_request_at"`
	ExceededCount int64      `json:"exceeded_count"`
	Revision      int64      `json:"revision" etag:""`
	CreatedAt     time.Time  `json:"created_at"`
	UpdatedBy     string     `json:"updated_by"`
	UpdatedAt     time.Time  `json:"updated_at"`
}

// UserRequest is what a user shall be. Its block stays as it is: /blocks changes that.
type UserRequest struct {
	Tier       *string      `json:"tier,omitempty"`
	QuotaHour  *admin.Whole `json:"quota_hour,omitempty"`
	QuotaDay   *admin.Whole `json:"quota_day,omitempty"`
	QuotaMonth *admin.Whole `json:"quota_month,omitempty"`
	Burst      *admin.Whole `json:"burst,omitempty"`
}

const UserColumns = `domain, name, tier, quota_hour, quota_day, quota_month, burst, blocked, block_reason, blocked_until, last_request_at, exceeded_count,
  revision, created_at, updated_by, updated_at`

const userSelect = `SELECT ` + UserColumns + ` FROM users WHERE domain = $1 AND name = $2`

// Users are those of a domain whose names are behind after, in the order of names; of one tier, and with names that begin with prefix, where
// these are given.
func (d *DB) Users(ctx context.Context, domain, after, tier, prefix string, count int) ([]User, error) {
	return Many[User](ctx, d.reads, `SELECT `+UserColumns+` FROM users WHERE domain = $1 AND name > $2 AND ($3 = '' OR tier = $3) AND starts_with(name, $4)
	  ORDER BY name LIMIT $5`, domain, after, tier, prefix, count)
}

// User is one user.
func (d *DB) User(ctx context.Context, domain, name string) (*User, error) {
	return found(One[User](ctx, d.reads, userSelect, domain, name))
}

// checkQuotas returns what is wrong with quotas, or nothing. Sidecars leave out what is no limit.
func (r *UserRequest) checkQuotas() string {
	for _, l := range Quotas(&User{QuotaHour: (*int64)(r.QuotaHour), QuotaDay: (*int64)(r.QuotaDay), QuotaMonth: (*int64)(r.QuotaMonth), Burst: (*int64)(r.Burst)}) {
		algorithm, window := limit.FixedWindow, l.Per
		if l.Month {
			window = descriptors.CalendarMonth.Length()
		} else if l.Name == "hour" {
			algorithm = limit.TokenBucket
		}
		err := limit.Limit{Algorithm: algorithm, Count: l.Count, Window: window, Burst: l.Burst}.Validate()
		if err != nil {
			return "quota_" + l.Name + ": " + err.Error()
		}
	}
	return ""
}

// SetUser makes a user what it shall be.
func (d *DB) SetUser(
	ctx context.Context, who Actor, domain, name string, r UserRequest, c Condition,
) (after *User, err error) {
	if wrong := r.checkQuotas(); wrong != "" {
		return nil, admin.NewProblem(http.StatusUnprocessableEntity, "%s", wrong)
	}
	err = makeDomain(ctx, d.Changes, who, domain)
	if err != nil {
		return nil, err
	}
	about := Subject{domain, KindUser, name}
	err = d.change(ctx, who, "set", about, changeUser(ctx, who, about, c, &after, `INSERT INTO users (domain, name, updated_by, tier, quota_hour, quota_day, quota_month, burst)
	  VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (domain, name) DO UPDATE SET tier = excluded.tier, quota_hour = excluded.quota_hour,
	  quota_day = excluded.quota_day, quota_month = excluded.quota_month, burst = excluded.burst,
	  updated_by = excluded.updated_by, updated_at = now(), revision = users.revision + 1 RETURNING `+UserColumns,
		r.Tier, (*int64)(r.QuotaHour), (*int64)(r.QuotaDay), (*int64)(r.QuotaMonth), (*int64)(r.Burst)))
	return after, err
}

// setBlock blocks a user, who is made where it is missing, or ends its block.
func (d *DB) setBlock(
	ctx context.Context, who Actor, action string, about Subject, r BlockRequest, blocked bool, c Condition,
) (after *User, err error) {
	err = makeDomain(ctx, d.urgent, who, about.Domain)
	if err != nil {
		return nil, err
	}
	err = d.changeBlock(ctx, who, action, about, changeUser(ctx, who, about, c, &after, `INSERT INTO users (domain, name, updated_by, blocked, block_reason, blocked_until)
	  VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (domain, name) DO UPDATE SET blocked = excluded.blocked, block_reason = excluded.block_reason,
	  blocked_until = excluded.blocked_until, updated_by = excluded.updated_by, updated_at = now(), revision = users.revision + 1
	  RETURNING `+UserColumns, blocked, r.Reason, r.Until))
	return after, err
}

// changeUser is a change that writes a user. The first parameters of the statement are the domain, the name, and who
// writes.
func changeUser(ctx context.Context, who Actor, about Subject, c Condition, after **User, sql string, args ...any) changes {
	return func(tx pgx.Tx) (any, any, error) {
		before, err := One[User](ctx, tx, userSelect+` FOR UPDATE`, about.Domain, about.Name)
		if err != nil {
			return nil, nil, err
		}
		err = c.check(revisionOf(before, func(u *User) int64 { return u.Revision }))
		if err != nil {
			return nil, nil, err
		}
		*after, err = One[User](ctx, tx, sql, append([]any{about.Domain, about.Name, who.Name}, args...)...)
		if err == nil && before == nil {
			err = c.made((*after).Revision)
		}
		return orNil(before), *after, err
	}
}

// DeleteUser removes a user without API keys.
func (d *DB) DeleteUser(ctx context.Context, who Actor, domain, name string, c Condition) error {
	return d.change(ctx, who, "delete", Subject{domain, "user", name}, func(tx pgx.Tx) (any, any, error) {
		before, err := found(One[User](ctx, tx, userSelect+` FOR UPDATE`, domain, name))
		if err == nil {
			err = c.check(before.Revision)
		}
		if err == nil {
			_, err = tx.Exec(ctx, `DELETE FROM users WHERE domain = $1 AND name = $2`, domain, name)
		}
		return before, nil, err
	})
}

// Quotas are the limits of a user.
func Quotas(u *User) (limits []records.Limit) {
	if u.QuotaHour != nil {
		l := records.Limit{Name: "hour", Count: *u.QuotaHour, Per: time.Hour, Burst: *u.QuotaHour, Algorithm: "token_bucket"}
		if u.Burst != nil {
			l.Burst = *u.Burst
		}
		limits = append(limits, l)
	}
	if u.QuotaDay != nil {
		limits = append(limits, records.Limit{Name: "day", Count: *u.QuotaDay, Per: 24 * time.Hour, Algorithm: "fixed_window"})
	}
	if u.QuotaMonth != nil {
		limits = append(limits, records.Limit{Name: "month", Count: *u.QuotaMonth, Month: true})
	}
	return limits
}
