package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/control/api"
	"github.com/spillway-mesh/spillway/control/database/questions"
)

func newControlAsk() *cobra.Command {
	var long strings.Builder
	long.WriteString("Ask the record of the control plane. docs/explain/usage-and-events.md explains the answers. The questions are:\n")
	var names []string
	for i := range questions.All {
		q := &questions.All[i]
		names = append(names, q.Name)
		fmt.Fprintf(&long, "\n  %-12s%s", q.Name, q.Title)
		if q.Needs != "" {
			fmt.Fprintf(&long, " Needs --%s.", q.Needs)
		}
	}
	cmd := &cobra.Command{
		Use: "ask QUESTION", Short: "Ask the record who was refused, where and why, who changed a rule, and what a user has used", Args: cobra.ExactArgs(1), ValidArgs: names,
		Example: "  spillway control ask violations --domain shop\n  spillway control ask refusals --domain shop --user ann --since 7d\n  spillway control ask changes --domain shop --rule per-user",
		Long:    long.String(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return askQuestion(cmd, args[0])
		},
	}
	addControl(cmd)
	cmd.Flags().String("user", "", "a user")
	cmd.Flags().String("rule", "", "name of a rule")
	cmd.Flags().String("since", "", "how far back, such as 90m, 24h or 7d, in place of the question's own")
	cmd.Flags().Int("limit", 20, "how many rows at most")
	return cmd
}

// askQuestion sends a question with the flags that are given, and prints the answer.
func askQuestion(cmd *cobra.Command, name string) error {
	for i := range questions.All {
		if questions.All[i].Name != name {
			continue
		}
		params := url.Values{}
		for _, flag := range []string{"user", "rule", "since", "limit"} {
			if cmd.Flag(flag).Changed {
				params.Set(flag, cmd.Flag(flag).Value.String())
			}
		}
		return answerQuestion(cmd, name, params)
	}
	return fmt.Errorf("the question %q is unknown: spillway control ask --help lists them", name)
}

func answerQuestion(cmd *cobra.Command, name string, params url.Values) error {
	domain, err := domainOf(cmd)
	if err != nil {
		return err
	}
	now, err := askControl(cmd, http.MethodGet, place(domain, "questions", name), nil, params)
	if err != nil {
		return err
	}
	var a api.QuestionAnswer
	err = now.read(&a)
	if err != nil {
		return err
	}
	return put(cmd, &a, showAnswer)
}

// showAnswer prints the rows of an answer.
func showAnswer(w io.Writer, a *api.QuestionAnswer) {
	if a.Since != nil {
		fmt.Fprintf(w, "%s, since %s\n", a.Question, instant(*a.Since))
	}
	if len(a.Rows) == 0 {
		fmt.Fprintln(w, "no rows")
		return
	}
	var headings []any
	for _, c := range a.Columns {
		headings = append(headings, strings.ToUpper(strings.ReplaceAll(c, "_", " ")))
	}
	t := newTable(w, headings...)
	for _, row := range a.Rows {
		var cells []any
		for _, c := range a.Columns {
			cells = append(cells, cell(row[c]))
		}
		t.row(cells...)
	}
	t.end()
}

// cell is a value of an answer as text: times as people read them, and objects as JSON.
func cell(value any) any {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		at, err := time.Parse(time.RFC3339Nano, v)
		if err == nil {
			return instant(at)
		}
		return v
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
		return v
	case map[string]any, []any:
		text, _ := json.Marshal(v) // it came as JSON
		return string(text)
	}
	return value
}
