package database

import (
	"context"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/spillway-mesh/spillway/httpapi"
	"github.com/spillway-mesh/spillway/profiles"
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
	UpgradedAt    *time.Time `json:"upgraded_at"` // when it got its tier; null: it has none
	Revision      int64      `json:"revision" etag:""`
	CreatedAt     time.Time  `json:"created_at"`
	UpdatedBy     string     `json:"updated_by"`
	UpdatedAt     time.Time  `json:"updated_at"`
}

// UserRequest is what a user shall be. Its block stays as it is: /blocks changes that.
type UserRequest struct {
	Tier       *string `json:"tier,omitempty"`
	QuotaHour  *int64  `json:"quota_hour,omitempty"`
	QuotaDay   *int64  `json:"quota_day,omitempty"`
	QuotaMonth *int64  `json:"quota_month,omitempty"`
	Burst      *int64  `json:"burst,omitempty"`
}

const userColumns = `domain, name, tier, quota_hour, quota_day, quota_month, burst, blocked, block_reason,
  blocked_until, last_request_at, exceeded_count, upgraded_at, revision, created_at, updated_by, updated_at`

// profileLock selects the row that a change is about.
const profileLock = `SELECT revision FROM profiles WHERE domain = @domain AND kind = @kind AND name = @name`

// UserFilter chooses users of a domain. An empty field chooses all.
type UserFilter struct {
	Domain, Tier string
	Prefix       string // what their names begin with
	After        string // only users behind this one, in the order of names
	LastRequest  bool   // the list has the last requests first, and not the order of names
	Behind       *UserPlace
}

// UserPlace is a place in the list of users by their last request. The user may have gone since.
type UserPlace struct {
	LastRequest *time.Time // nil: there was none
	Name        string
}

// lastRequests are the statement of users by their last request, and what is behind a place.
const (
	lastRequests = `SELECT ` + userColumns + ` FROM users WHERE domain = $1 AND ($2 = '' OR tier = $2)
	  AND starts_with(name, $3) AND (coalesce(last_request_at, '-infinity'), name) < ($4, $5)
	  ORDER BY coalesce(last_request_at, '-infinity') DESC, name DESC LIMIT $6`
	usersByName = `SELECT ` + userColumns + ` FROM users WHERE domain = $1 AND ($2 = '' OR tier = $2)
	  AND starts_with(name, $3) AND name > $4 ORDER BY name LIMIT $5`
)

// Users are those that a filter chooses.
func (d *DB) Users(ctx context.Context, f UserFilter, count int) ([]User, error) {
	if !f.LastRequest {
		return Many[User](ctx, d.reads, usersByName, f.Domain, f.Tier, f.Prefix, f.After, count)
	}
	at, name := pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}, ""
	if f.Behind != nil {
		name, at.InfinityModifier = f.Behind.Name, pgtype.NegativeInfinity
	}
	if f.Behind != nil && f.Behind.LastRequest != nil {
		at.Time, at.InfinityModifier = *f.Behind.LastRequest, pgtype.Finite
	}
	return Many[User](ctx, d.reads, lastRequests, f.Domain, f.Tier, f.Prefix, at, name, count)
}

// User is one user.
func (d *DB) User(ctx context.Context, domain, name string) (*User, error) {
	return found(
		One[User](ctx, d.reads, `SELECT `+userColumns+` FROM users WHERE domain = $1 AND name = $2`, domain, name))
}

// checkQuotas returns what is wrong with quotas, or nothing. Sidecars leave out what is not a limit.
func (r *UserRequest) checkQuotas() string {
	quotas := Quotas(&User{
		QuotaHour: r.QuotaHour, QuotaDay: r.QuotaDay,
		QuotaMonth: r.QuotaMonth, Burst: r.Burst,
	})
	if r.Burst != nil && r.QuotaHour == nil {
		return "burst needs quota_hour: it is how much of that quota may come at once"
	}
	for _, l := range quotas {
		_, err := l.Compile()
		if err != nil {
			return "quota_" + l.Name + ": " + err.Error()
		}
	}
	return ""
}

// SetUser makes a user what it shall be. want is the revision that the caller has read, 0 for none; nil: any.
func (d *DB) SetUser(
	ctx context.Context, by Actor, domain, name string, r UserRequest, want *int64,
) (after *User, err error) {
	if wrong := r.checkQuotas(); wrong != "" {
		return nil, httpapi.NewProblem(http.StatusUnprocessableEntity, "%s", wrong)
	}
	err = makeDomain(ctx, d.changes, by, domain)
	if err != nil {
		return nil, err
	}
	args := pgx.NamedArgs{
		"domain": domain, "kind": KindUser, "name": name, "tier": r.Tier, "hour": r.QuotaHour,
		"day": r.QuotaDay, "month": r.QuotaMonth, "burst": r.Burst,
	}
	err = d.Write(ctx, by, "set", func(tx pgx.Tx) error {
		after, err = put(ctx, tx, want, profileLock, `
		  INSERT INTO profiles (domain, kind, name, tier, quota_hour, quota_day, quota_month, burst)
		  VALUES (@domain, @kind, @name, @tier, @hour, @day, @month, @burst) ON CONFLICT (domain, kind, name) DO UPDATE
		  SET tier = excluded.tier, quota_hour = excluded.quota_hour, quota_day = excluded.quota_day,
		  quota_month = excluded.quota_month, burst = excluded.burst
		  RETURNING `+userColumns, args, func(u *User) int64 { return u.Revision })
		return err
	})
	return after, noTier(err, tierOfProfile, domain, r.Tier)
}

// DeleteUser removes a user without API keys.
func (d *DB) DeleteUser(ctx context.Context, by Actor, domain, name string, want *int64) error {
	args := pgx.NamedArgs{"domain": domain, "kind": KindUser, "name": name}
	err := d.Write(ctx, by, "delete", func(tx pgx.Tx) error {
		return remove(ctx, tx, want, profileLock,
			`DELETE FROM profiles WHERE domain = @domain AND kind = @kind AND name = @name`, args)
	})
	return used(err, userOfKey, "user %q is in use: it has API keys, valid or revoked. "+
		"spillway keys list --user %[2]s "+
		"shows them, and spillway erasures create user/%[2]s removes them with the user", name, name)
}

// Quotas are the limits of a user.
func Quotas(u *User) (limits []profiles.Limit) {
	if u.QuotaHour != nil {
		l := profiles.Limit{Name: "hour", Count: *u.QuotaHour, Per: time.Hour, Burst: *u.QuotaHour,
			Algorithm: "token_bucket"}
		if u.Burst != nil {
			l.Burst = *u.Burst
		}
		limits = append(limits, l)
	}
	if u.QuotaDay != nil {
		limits = append(limits,
			profiles.Limit{Name: "day", Count: *u.QuotaDay, Per: 24 * time.Hour, Algorithm: "fixed_window"})
	}
	if u.QuotaMonth != nil {
		limits = append(limits, profiles.Limit{Name: "month", Count: *u.QuotaMonth, Month: true})
	}
	return limits
}
