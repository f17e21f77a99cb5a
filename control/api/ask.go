package api

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/control/database/questions"
	"github.com/spillway-mesh/spillway/descriptors"
)

const (
	askDefault = 20                   // rows
	askLongest = 400 * 24 * time.Hour // back
)

// QuestionView is a question that the API answers, with the statement that a shell of the database takes, too.
type QuestionView struct {
	Name       string   `json:"name"`
	Title      string   `json:"title"`
	Path       string   `json:"path"`
	Parameters []string `json:"parameters"`
	Since      string   `json:"since,omitempty"` // the default
	SQL        string   `json:"sql"`
}

// QuestionList is all questions.
type QuestionList struct {
	Questions []QuestionView `json:"questions"`
}

// QuestionAnswer is the answer to a question: rows, whose fields are the columns.
type QuestionAnswer struct {
	Question string           `json:"question"`
	Since    *time.Time       `json:"since"`
	Columns  []string         `json:"columns"`
	Rows     []map[string]any `json:"rows"`
}

// questionPath is where a question is answered.
func questionPath(q *questions.Question) string { return "/v1/domains/{domain}/questions/" + q.Name }

// questionRoutes is a route for each question, and one that lists them.
func questionRoutes() []route {
	all := []route{{method: "GET", path: "/v1/questions", role: Viewer, reach: noDomain, serve: (*API).questions, summary: "The questions that the record answers, with their statements.", answers: QuestionList{}}}
	for i := range questions.All {
		q := &questions.All[i]
		all = append(all, route{method: "GET", path: questionPath(q), role: Viewer, summary: q.Title, answers: QuestionAnswer{}, params: described(q),
			serve: func(a *API, c *call) (any, error) { return a.answer(c, q) }})
	}
	return all
}

// described is the parameters of a question for the document: the one that it needs is marked.
func described(q *questions.Question) []string {
	all := q.Parameters()
	if q.Needs != "" {
		all[0] += ":needed"
	}
	return all
}

// questions serves GET /v1/questions.
func (a *API) questions(c *call) (any, error) {
	_, err := c.query()
	if err != nil {
		return nil, err
	}
	list := QuestionList{}
	for i := range questions.All {
		q := &questions.All[i]
		view := QuestionView{Name: q.Name, Title: q.Title, Path: questionPath(q), Parameters: q.Parameters(), SQL: q.SQL}
		if q.Since > 0 {
			view.Since = strconv.Itoa(int(q.Since/(24*time.Hour))) + "d"
		}
		list.Questions = append(list.Questions, view)
	}
	return list, nil
}

// answer serves one question.
func (a *API) answer(c *call, q *questions.Question) (any, error) {
	now := time.Now().UTC()
	asked, err := c.query(q.Parameters()...)
	if err != nil {
		return nil, err
	}
	limit, err := number(asked, "limit", askDefault, pageMost)
	if err != nil {
		return nil, err
	}
	result := QuestionAnswer{Question: q.Name}
	args := pgx.NamedArgs{"domain": c.domain(), "limit": limit}
	if q.Since > 0 {
		back, err := span(asked, q.Since)
		if err != nil {
			return nil, err
		}
		since := now.Add(-back)
		args["since"], result.Since = since, &since
	}
	err = a.about(c, q.Needs, asked[q.Needs], now, args)
	if err != nil {
		return nil, err
	}
	result.Columns, result.Rows, err = a.Database.Ask(c.ctx, q, args)
	return result, err
}

// about adds what a statement about one user, or one rule, takes.
func (a *API) about(c *call, kind, name string, now time.Time, args pgx.NamedArgs) error {
	switch {
	case kind == "":
		return nil
	case name == "":
		return admin.NewProblem(http.StatusBadRequest, "%s is missing: the question is about one %s", kind, kind)
	}
	args[kind] = name
	if kind != database.KindUser {
		return nil
	}
	zone, err := a.Database.Zone(c.ctx, c.domain())
	if err != nil {
		return err
	}
	args["identity"] = a.Keys.Identity(database.KindUser, name)
	args["hour"] = now.Truncate(time.Minute).Add(-59 * time.Minute) // a quota by the hour is a bucket: the last 60 minutes count
	args["day"] = now.Truncate(24 * time.Hour)
	args["month"] = descriptors.MonthOf(now, zone, 0)
	return nil
}

// span reads the parameter since: how far back, such as 90m, 24h or 7d.
func span(asked map[string]string, otherwise time.Duration) (time.Duration, error) {
	text, given := asked["since"]
	if !given {
		return otherwise, nil
	}
	units := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}
	unit := units[text[len(text)-1]]
	n, err := strconv.ParseInt(strings.TrimLeft(text[:len(text)-1], "0"), 10, 32)
	if err != nil || unit == 0 || n < 1 || time.Duration(n) > askLongest/unit {
		return 0, admin.NewProblem(http.StatusBadRequest, "since %q must be a number and a unit, such as 90m, 24h or 7d, and at most 400d", text)
	}
	return time.Duration(n) * unit, nil
}
