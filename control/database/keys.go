package database

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/httpapi"
	"github.com/spillway-mesh/spillway/profiles"
)

// APIKey is an API key, without its secret.
type APIKey struct {
	Domain          string                  `json:"domain"`
	ID              string                  `json:"id"`
	Prefix          string                  `json:"prefix"` // what its secret begins with
	UserName        string                  `json:"user"`
	Name            string                  `json:"name"` // what people call it
	Tier            *string                 `json:"tier"`
	Limits          []profiles.LimitRequest `json:"limits"` // its own, in place of its user's
	ExpiresAt       *time.Time              `json:"expires_at"`
	RevokedAt       *time.Time              `json:"revoked_at"`
	RevokedBy       *string                 `json:"revoked_by"`
	LastUsedAt      *time.Time              `json:"last_used_at"`
	TotalRequests   int64                   `json:"total_requests"`
	RefusedRequests int64                   `json:"refused_requests"` // of these
	Revision        int64                   `json:"revision" etag:""`
	CreatedBy       string                  `json:"created_by"`
	CreatedAt       time.Time               `json:"created_at"`
}

// KeyRequest asks for a new API key.
type KeyRequest struct {
	ID        string                  `json:"id"`
	User      string                  `json:"user"`
	Name      string                  `json:"name,omitempty"` // what people call it
	Tier      *string                 `json:"tier,omitempty"`
	Limits    []profiles.LimitRequest `json:"limits,omitempty"`
	ExpiresAt *time.Time              `json:"expires_at,omitempty"`
}

// KeyChange is what an API key shall be. What is left out, it has no more.
type KeyChange struct {
	Name      string                  `json:"name,omitempty"` // what people call it
	Tier      *string                 `json:"tier,omitempty"`
	Limits    []profiles.LimitRequest `json:"limits,omitempty"`
	ExpiresAt *time.Time              `json:"expires_at,omitempty"`
}

// KeyRotation asks for a key in place of another one, with its user, name, tier, limits and end.
type KeyRotation struct {
	ID        string     `json:"id"`                    // of the new key
	ExpiresAt *time.Time `json:"expires_at,omitempty"`  // of the new key; none: that of the old one before this
	OldEndsAt *time.Time `json:"old_ends_at,omitempty"` // when the old key ends, unless it ends earlier; none: now
}

// NewKey is a new API key with its secret, which is shown this once.
type NewKey struct {
	APIKey
	Secret string `json:"secret"`
}

const (
	secretHead   = "spw_"
	prefixLength = 10
	keyColumns   = `domain, id, prefix, user_name, name, tier, limits, expires_at, revoked_at, revoked_by, last_used_at,
	  total_requests, refused_requests, revision, created_by, created_at`
	keyLock = `SELECT revision FROM api_keys WHERE domain = @domain AND id = @id`
)

// Keys are those of a domain whose ids are behind after, in the order of ids; of one user where one is given.
func (d *DB) Keys(ctx context.Context, domain, after, user string, count int) ([]APIKey, error) {
	return Many[APIKey](ctx, d.reads, `SELECT `+keyColumns+` FROM api_keys
	  WHERE domain = $1 AND id > $2 AND ($3 = '' OR user_name = $3) ORDER BY id LIMIT $4`, domain, after, user, count)
}

// Key is one key.
func (d *DB) Key(ctx context.Context, domain, id string) (*APIKey, error) {
	return found(
		One[APIKey](ctx, d.reads, `SELECT `+keyColumns+` FROM api_keys WHERE domain = $1 AND id = $2`, domain, id))
}

// AddKey makes a key. Its secret is not kept: the database has its digest.
func (d *DB) AddKey(ctx context.Context, by Actor, domain string, r KeyRequest) (*NewKey, error) {
	return d.makeKey(ctx, by, "add", pgx.NamedArgs{
		"domain": domain, "new": r.ID, "user": r.User, "name": r.Name, "tier": r.Tier, "limits": listed(r.Limits),
		"expires": r.ExpiresAt,
	}, `VALUES (@domain, @new, @digest, @prefix, @user, @name, @tier, @limits, @expires)`,
		func(pgx.Tx) error { return nil })
}

// RotateKey makes a key like another one, which ends then or later.
func (d *DB) RotateKey(
	ctx context.Context, by Actor, domain, id string, r KeyRotation, want *int64,
) (*NewKey, error) {
	args := pgx.NamedArgs{"domain": domain, "id": id, "new": r.ID, "expires": r.ExpiresAt, "ends": r.OldEndsAt}
	return d.makeKey(ctx, by, "rotate", args, `SELECT domain, @new, @digest, @prefix, user_name, name, tier, limits,
	    @expires::timestamptz FROM api_keys WHERE domain = @domain AND id = @id`,
		func(tx pgx.Tx) error {
			end, err := One[struct{ ExpiresAt *time.Time }](ctx, tx, `
			  SELECT coalesce(@expires, expires_at) AS expires_at
			  FROM api_keys WHERE domain = @domain AND id = @id FOR UPDATE`, args)
			if err != nil {
				return err
			}
			if end != nil { // else there is no such key, which changeKey refuses
				args["expires"] = end.ExpiresAt
			}
			old, err := changeKey(ctx, tx, args, want, `expires_at = least(expires_at, @ends),
			  revoked_at = CASE WHEN @ends::timestamptz IS NULL THEN now() END,
			  revoked_by = CASE WHEN @ends::timestamptz IS NULL THEN actor() END`)
			if err == nil && old.ExpiresAt != nil && !old.ExpiresAt.After(time.Now()) {
				err = ended(id, "has expired")
			}
			return err
		})
}

// makeKey makes a key of the row that from is, after what has to be done before it.
func (d *DB) makeKey(
	ctx context.Context, by Actor, action string, args pgx.NamedArgs, from string, first func(pgx.Tx) error,
) (*NewKey, error) {
	secret := secretHead + rand.Text()
	digest := sha256.Sum256([]byte(secret))
	args["digest"], args["prefix"] = digest[:], secret[:prefixLength]
	var made *APIKey
	err := d.Write(ctx, by, action, func(tx pgx.Tx) error {
		err := first(tx)
		if err != nil {
			return err
		}
		made, err = One[APIKey](ctx, tx, `INSERT INTO api_keys (domain, id, digest, prefix, user_name, name, tier,
		  limits, expires_at) `+from+` ON CONFLICT (domain, id) DO NOTHING RETURNING `+keyColumns, args)
		if err == nil && made == nil {
			err = taken(ctx, tx, args)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &NewKey{*made, secret}, nil
}

// taken is why no key of an id can be made.
func taken(ctx context.Context, tx pgx.Tx, args pgx.NamedArgs) error {
	var revoked bool
	err := tx.QueryRow(ctx, `SELECT revoked_at IS NOT NULL FROM api_keys WHERE domain = @domain AND id = @new`,
		args).Scan(&revoked)
	if err != nil {
		return err
	}
	state := map[bool]string{true: " and is revoked"}[revoked]
	return httpapi.NewProblem(http.StatusConflict, "%s exists%s: choose another id", args["new"], state)
}

// ended is the problem of a change of a key that is no longer valid.
func ended(id, why string) error {
	return httpapi.NewProblem(http.StatusConflict, "%s %s: make another key", id, why)
}

// SetKey makes a key what it shall be. One that is revoked stays as it is.
func (d *DB) SetKey(
	ctx context.Context, by Actor, domain, id string, r KeyChange, want *int64,
) (after *APIKey, err error) {
	args := pgx.NamedArgs{
		"domain": domain, "id": id, "name": r.Name, "tier": r.Tier, "limits": listed(r.Limits),
		"expires": r.ExpiresAt,
	}
	err = d.Write(ctx, by, "set", func(tx pgx.Tx) error {
		after, err = changeKey(ctx, tx, args, want,
			`name = @name, tier = @tier, limits = @limits, expires_at = @expires`)
		return err
	})
	return after, err
}

// changeKey changes columns of a key that is not revoked.
func changeKey(
	ctx context.Context, tx pgx.Tx, args pgx.NamedArgs, want *int64, columns string,
) (*APIKey, error) {
	have, err := revision(ctx, tx, keyLock, args)
	if err == nil && have == 0 {
		err = ErrNotFound
	}
	if err == nil {
		err = check(want, have)
	}
	if err != nil {
		return nil, err
	}
	after, err := One[APIKey](ctx, tx, `UPDATE api_keys SET `+columns+`
	  WHERE domain = @domain AND id = @id AND revoked_at IS NULL RETURNING `+keyColumns, args)
	if err == nil && after == nil {
		err = ended(args["id"].(string), "is revoked")
	}
	return after, err
}

// RevokeKey ends a key. It stays in the database, so that it is known who had it.
func (d *DB) RevokeKey(ctx context.Context, by Actor, domain, id string, want *int64) (after *APIKey, err error) {
	args := pgx.NamedArgs{"domain": domain, "id": id}
	err = d.Write(ctx, by, "revoke", func(tx pgx.Tx) error {
		have, err := revision(ctx, tx, keyLock, args)
		if err == nil && have == 0 {
			err = ErrNotFound
		}
		if err == nil {
			err = check(want, have)
		}
		if err != nil {
			return err
		}
		after, err = One[APIKey](ctx, tx, `
		  UPDATE api_keys SET revoked_at = coalesce(revoked_at, now()), revoked_by = coalesce(revoked_by, actor())
		  WHERE domain = @domain AND id = @id RETURNING `+keyColumns, args)
		return err
	})
	return after, err
}
