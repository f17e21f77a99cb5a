package database

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/admin"
)

// APIKey is an API key, without its secret.
type APIKey struct {
	Domain          string           `json:"domain"`
	ID              string           `json:"id"`
	Prefix          string           `json:"prefix"` // what its secret begins with
	UserName        string           `json:"user"`
	Tier            *string          `json:"tier"`
	Limits          []admin.NewLimit `json:"limits"` // its own, in place of its user's
	ExpiresAt       *time.Time       `json:"expires_at"`
	RevokedAt       *time.Time       `json:"revoked_at"`
	RevokedBy       *string          `json:"revoked_by"`
	LastUsedAt      *time.Time       `json:"last_used_at"`
	TotalRequests   int64            `json:"total_requests"`
	RefusedRequests int64            `json:"refused_requests"` // of these
	Revision        int64            `json:"revision" etag:""`
	CreatedBy       string           `json:"created_by"`
	CreatedAt       time.Time        `json:"created_at"`
}

// KeyRequest asks for a new API key.
type KeyRequest struct {
	ID        string           `json:"id"`
	User      string           `json:"user"`
	Tier      *string          `json:"tier,omitempty"`
	Limits    []admin.NewLimit `json:"limits,omitempty"`
	ExpiresAt *time.Time       `json:"expires_at,omitempty"`
}

// NewKey is a new API key with its secret, which is shown this once.
type NewKey struct {
	APIKey
	Secret string `json:"secret"`
}

const (
	secretHead   = "spw_"
	prefixLength = 10
	keyColumns   = `domain, id, prefix, user_name, tier, limits, expires_at, revoked_at, revoked_by, last_used_at, total_requests, refused_requests, revision, created_by, created_at`
	keySelect    = `SELECT ` + keyColumns + ` FROM api_keys WHERE domain = $1 AND id = $2`
)

// Keys are those of a domain whose ids are behind after, in the order of ids; of one user where one is given.
func (d *DB) Keys(ctx context.Context, domain, after, user string, count int) ([]APIKey, error) {
	return Many[APIKey](ctx, d.reads, `SELECT `+keyColumns+` FROM api_keys WHERE domain = $1 AND id > $2 AND ($3 = '' OR user_name = $3) ORDER BY id LIMIT $4`, domain, after, user, count)
}

// Key is one key.
func (d *DB) Key(ctx context.Context, domain, id string) (*APIKey, error) {
	return found(One[APIKey](ctx, d.reads, keySelect, domain, id))
}

// AddKey makes a key. Its secret is kept nowhere: the database has its digest.
func (d *DB) AddKey(ctx context.Context, who Actor, domain string, r KeyRequest) (*NewKey, error) {
	secret := secretHead + rand.Text()
	digest := sha256.Sum256([]byte(secret))
	var made *APIKey
	err := d.change(ctx, who, "add", Subject{domain, "key", r.ID}, func(tx pgx.Tx) (any, any, error) {
		before, err := One[APIKey](ctx, tx, keySelect, domain, r.ID)
		if err == nil && before != nil {
			err = &Conflict{before.Revision}
		}
		if err != nil {
			return nil, nil, err
		}
		made, err = One[APIKey](ctx, tx, `INSERT INTO api_keys (domain, id, digest, prefix, user_name, tier, limits, expires_at, created_by)
		  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING `+keyColumns,
			domain, r.ID, digest[:], secret[:prefixLength], r.User, r.Tier, AsJSON(append([]admin.NewLimit{}, r.Limits...)), r.ExpiresAt, who.Name)
		return nil, made, err
	})
	if err != nil {
		return nil, err
	}
	return &NewKey{*made, secret}, nil
}

// RevokeKey ends a key. It stays in the database, so that it is known who had it.
func (d *DB) RevokeKey(ctx context.Context, who Actor, domain, id string, c Condition) (after *APIKey, err error) {
	err = d.change(ctx, who, "revoke", Subject{domain, "key", id}, func(tx pgx.Tx) (any, any, error) {
		before, err := found(One[APIKey](ctx, tx, keySelect+` FOR UPDATE`, domain, id))
		if err == nil {
			err = c.check(before.Revision)
		}
		if err != nil {
			return nil, nil, err
		}
		after, err = One[APIKey](ctx, tx, `UPDATE api_keys SET revoked_at = coalesce(revoked_at, now()), revoked_by = coalesce(revoked_by, $3), revision = revision + 1
		  WHERE domain = $1 AND id = $2 RETURNING `+keyColumns, domain, id, who.Name)
		return before, after, err
	})
	return after, err
}
