package api

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/control/database/questions"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/httpapi"
)

// question is the inputs of each question.
type question struct {
	inDomain
	Limit int `query:"limit" in:"1..1000" or:"20"` // how many rows
}

// questionSince is the inputs of a question about a time.
type questionSince struct {
	question
	// a time such as 90m, 24h or 7d, and at most 400d: how far back
	Since string `query:"since" like:"^([1-9][0-9]{0,2}[smh]|([1-9][0-9]?|[1-3][0-9]{2}|400)d)$"`
}

// questionAnyRule is the inputs of a question about a time, and perhaps about one rule.
type questionAnyRule struct {
	questionSince
	Rule string `query:"rule"` // of one rule alone
}

// questionUser is the inputs of a question about a user.
type questionUser struct {
	question
	User string `query:"user,required"` // whom the question is about
}

// questionUserSince is the inputs of a question about a user and a time.
type questionUserSince struct {
	questionSince
	User string `query:"user,required"` // whom the question is about
}

// questionRule is the inputs of a question about a rule.
type questionRule struct {
	question
	Rule string `query:"rule,required"` // what the question is about
}

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
func questionPath(q *questions.Question) string { return domainPath + "/questions/" + q.Name }

func (a *API) addQuestions(api *httpapi.API) {
	all := get("/v1/questions", "The questions that the record answers, with their statements.")
	all.AnyDomain = true
	httpapi.Add(api, all, a.questions)
	for i := range questions.All {
		q := &questions.All[i]
		op := get(questionPath(q), q.Title)
		switch {
		case q.Needs == "user" && q.Since > 0:
			httpapi.Add(api, op, func(ctx context.Context, in *questionUserSince) (*QuestionAnswer, error) {
				return a.answer(ctx, q, in.question, in.Since, in.User)
			})
		case q.Needs == "user":
			httpapi.Add(api, op, func(ctx context.Context, in *questionUser) (*QuestionAnswer, error) {
				return a.answer(ctx, q, in.question, "", in.User)
			})
		case q.Takes == "rule":
			httpapi.Add(api, op, func(ctx context.Context, in *questionAnyRule) (*QuestionAnswer, error) {
				return a.answer(ctx, q, in.question, in.Since, in.Rule)
			})
		case q.Needs == "" && q.Since == 0:
			httpapi.Add(api, op, func(ctx context.Context, in *question) (*QuestionAnswer, error) {
				return a.answer(ctx, q, *in, "", "")
			})
		case q.Needs == "rule":
			httpapi.Add(api, op, func(ctx context.Context, in *questionRule) (*QuestionAnswer, error) {
				return a.answer(ctx, q, in.question, "", in.Rule)
			})
		default:
			httpapi.Add(api, op, func(ctx context.Context, in *questionSince) (*QuestionAnswer, error) {
				return a.answer(ctx, q, in.question, in.Since, "")
			})
		}
	}
}

// questions serves GET /v1/questions.
func (a *API) questions(context.Context, *httpapi.None) (*QuestionList, error) {
	list := &QuestionList{}
	for i := range questions.All {
		q := &questions.All[i]
		view := QuestionView{Name: q.Name, Title: q.Title, Path: questionPath(q), Parameters: q.Parameters(),
			SQL: q.SQL}
		if q.Since > 0 {
			view.Since = strconv.Itoa(int(q.Since/(24*time.Hour))) + "d"
		}
		list.Questions = append(list.Questions, view)
	}
	return list, nil
}

// answer serves one question.
func (a *API) answer(ctx context.Context, q *questions.Question, in question, since, name string) (*QuestionAnswer,
	error) {
	now := time.Now().UTC()
	result := &QuestionAnswer{Question: q.Name}
	args := pgx.NamedArgs{"domain": in.Domain, "limit": in.Limit}
	if q.Since > 0 {
		from := now.Add(-back(since, q.Since))
		args["since"], result.Since = from, &from
	}
	args[cmp.Or(q.Needs, q.Takes)] = name
	if q.Needs == database.KindUser {
		args["identity"] = a.Keys.Identity(database.KindUser, name)
	}
	if q.Periods {
		zone, err := a.Database.Zone(ctx, in.Domain)
		if err != nil {
			return nil, err
		}
		// A quota by the hour is a bucket: the last 60 minutes count.
		args["hour"] = now.Truncate(time.Minute).Add(-59 * time.Minute)
		args["day"] = now.Truncate(24 * time.Hour)
		args["month"] = descriptors.MonthOf(now, zone, 0)
	}
	var err error
	result.Columns, result.Rows, err = a.Database.Ask(ctx, q, args)
	return result, err
}

// back is how far back a text such as 90m, 24h or 7d reaches, which was checked; an empty one is the default.
func back(since string, otherwise time.Duration) time.Duration {
	if since == "" {
		return otherwise
	}
	units := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}
	n, _ := strconv.Atoi(since[:len(since)-1]) // the pattern allows a number and a unit alone
	return time.Duration(n) * units[since[len(since)-1]]
}
