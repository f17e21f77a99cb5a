package database

import (
	"context"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/control/database/questions"
	"github.com/spillway-mesh/spillway/httpapi"
)

// Ask runs the statement of a question.
func (d *DB) Ask(
	ctx context.Context, q *questions.Question, args pgx.NamedArgs,
) (columns []string, found []map[string]any, err error) {
	rows, err := d.reads.Query(ctx, q.SQL, args)
	if err == nil {
		// they are the connection's, which goes back to the pool with the last row
		for _, f := range rows.FieldDescriptions() {
			columns = append(columns, f.Name)
		}
		found, err = pgx.CollectRows(rows, pgx.RowToMap)
	}
	if sqlCode(err) == CodeCanceled {
		return nil, nil, httpapi.NewProblem(http.StatusServiceUnavailable,
			"the answer takes the database more than %v: ask about a shorter time (since)", StatementWithin)
	}
	if err != nil {
		return nil, nil, err
	}
	return columns, listed(found), nil
}
