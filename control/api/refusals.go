package api

import (
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/httpapi"
)

// sqlProblem is what the database refuses, in words of the control: those of the database are in the log.
func (a *API) sqlProblem(e *pgconn.PgError) *httpapi.Problem {
	const away = http.StatusServiceUnavailable
	switch {
	case e.Code == database.CodeLockTimeout, e.Code == database.CodeDeadlock:
		return httpapi.NewProblem(away, "another change holds what this one needs, and nothing was changed: try again")
	case e.Code == database.CodeCanceled:
		return httpapi.NewProblem(away, "the database needs more than %v for it: ask for less, or try again",
			database.StatementWithin)
	case e.Code == "23503" && strings.Contains(e.Detail, "is still referenced"):
		return httpapi.NewProblem(http.StatusConflict, "it is in use, and nothing was changed")
	case e.Code == "23503":
		return httpapi.Cannot("%s", absent(e))
	}
	a.Log.Warn("the database refuses a change", "error", e)
	switch {
	case strings.HasPrefix(e.Code, "23"):
		return httpapi.Cannot("%s: nothing was changed", broken(e))
	case strings.HasPrefix(e.Code, "22"):
		return httpapi.Cannot("a text has a character, or a number or a time is of a size, that the database cannot " +
			"keep: nothing was changed")
	}
	return httpapi.NewProblem(away, "the database cannot do it now, and the log of the control has the reason")
}

// absent is what a change names that does not exist.
func absent(e *pgconn.PgError) string {
	what := "user"
	switch {
	case strings.HasSuffix(e.ConstraintName, "_tier_fkey"):
		what = "tier"
	case strings.HasSuffix(e.ConstraintName, "_domain_fkey"):
		what = "domain"
	}
	// Key (domain, tier)=(api, gold) is not present in table "tiers".
	columns, values, _ := strings.Cut(e.Detail, ")=(")
	values, _, _ = strings.Cut(values, ") is not present")
	parts := strings.SplitN(values, ", ", strings.Count(columns, ",")+1)
	return "there is no " + what + " " + parts[len(parts)-1] + ": make it first"
}

// broken is the condition that a row breaks, whose name states what has to be.
func broken(e *pgconn.PgError) string {
	column, ranged := strings.CutSuffix(strings.TrimPrefix(e.ConstraintName, e.TableName+"_"), "_check")
	switch {
	case e.ColumnName != "":
		return e.ColumnName + " is missing"
	case ranged:
		return column + " is outside of its range"
	}
	return strings.ReplaceAll(e.ConstraintName, "_", " ")
}
