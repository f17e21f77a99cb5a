package database

import (
	"errors"
	"net/http"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spillway-mesh/spillway/httpapi"
)

// codeReference is the code of the error of a row that names what there is not, or that others name.
const codeReference = "23503"

// The names of foreign keys.
const (
	tierOfProfile = "profiles_domain_tier_fkey"
	tierOfKey     = "api_keys_domain_tier_fkey"
	userOfKey     = "api_keys_domain_user_kind_user_name_fkey"
)

// absent turns the error of a row whose foreign key names nothing into a problem in these words.
func absent(err error, key, format string, args ...any) error {
	return referring(err, key, http.StatusUnprocessableEntity, format, args...)
}

// used turns the error of the removal of a row that a foreign key names into a problem in these words.
func used(err error, key, format string, args ...any) error {
	return referring(err, key, http.StatusConflict, format, args...)
}

func referring(err error, key string, status int, format string, args ...any) error {
	var sql *pgconn.PgError
	if errors.As(err, &sql) && sql.Code == codeReference && sql.ConstraintName == key {
		return httpapi.NewProblem(status, format, args...)
	}
	return err
}

// noTier is absent for a tier, nil for none.
func noTier(err error, key, domain string, tier *string) error {
	if tier == nil {
		return err
	}
	return absent(err, key, "tier %q does not exist in the domain %s: spillway tiers list shows those that do", *tier,
		domain)
}
