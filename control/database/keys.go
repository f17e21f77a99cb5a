package database

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/profiles"
)

// APIKey is an API key, without its secret.
type APIKey struct {
	Domain          string                  `json:"domain"`
	ID              string                  `json:"id"`
	Prefix          string                  `json:"prefix"` // what its secret begins with
	UserName        string                  `json:"user"`
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
	Tier      *string                 `json:"tier,omitempty"`
	Limits    []profiles.LimitRequest `json:"limits,omitempty"`
	ExpiresAt *time.Time              `json:"expires_at,omitempty"`
}

// NewKey is a new API key with its secret, which is shown this once.
type NewKey struct {
	APIKey
	Secret string `json:"secret"`
}

const (
	secretHead   = "spw_"
	prefixLength = 10
	keyColumns   = `domain, id, prefix, user_name, tier, limits, expires_at, revoked_at, revoked_by, last_used_at,
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
	secret := secretHead + rand.Text()
	digest := sha256.Sum256([]byte(secret))
	args := pgx.NamedArgs{
		"domain": domain, "id": r.ID, "digest": digest[:], "prefix": secret[:prefixLength], "user": r.User,
		"tier": r.Tier, "limits": listed(r.Limits), "expires": r.ExpiresAt,
	}
	var made *APIKey
	err := d.Write(ctx, by, "add", func(tx pgx.Tx) error {
		have, err := revision(ctx, tx, keyLock, args)
		if err == nil {
			err = check(new(int64), have)
		}
		if err != nil {
			return err
		}
		made, err = One[APIKey](ctx, tx, `
		  INSERT INTO api_keys (domain, id, digest, prefix, user_name, tier, limits, expires_at)
		  VALUES (@domain, @id, @digest, @prefix, @user, @tier, @limits, @expires) RETURNING `+keyColumns, args)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &NewKey{*made, secret}, nil
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
