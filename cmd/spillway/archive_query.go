package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/archive"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/settings"
)

func newArchiveQuery() *cobra.Command {
	cmd := &cobra.Command{
		Use: "query", Short: "Print events from the files of the archive", Args: between(0, 0), RunE: queryArchive,
		Example: "  spillway archive query --domain shop --identity user:ann --outcome refused --from 2026-05-01 --to 2026-06-01",
		Long: `Print events straight from the files, without a database. With KEY_SECRET set as the sidecars have it, --identity also
finds events that hold its HMAC.`,
	}
	addRegion(cmd)
	addProgress(cmd)
	addOptions(cmd, []option{
		{"identity", "KIND:VALUE, such as user:ann", nil}, {"outcome", "what became of the request", nil},
		{"from", "from this day or time on, such as 2026-05-01 or 2026-05-01T10:00:00Z", nil},
		{"to", "before this day or time", nil},
	})
	cmd.Flags().String("rule", "", "name of the rule that decided")
	cmd.Flags().Int64("limit", 0, "print at most so many; 0: all")
	return cmd
}

// errEnough ends a query that has printed what was asked for.
var errEnough = errors.New("enough")

func queryArchive(cmd *cobra.Command, _ []string) error {
	out, err := newPrinter(cmd)
	if err != nil {
		return err
	}
	ask, err := filterOf(cmd)
	if err != nil {
		return err
	}
	store, _, err := openStore(cmd)
	if err != nil {
		return err
	}
	show, end, err := archiveBar(cmd)
	if err != nil {
		return err
	}
	limit, _ := cmd.Flags().GetInt64("limit")
	p := &eventPrinter{printer: out}
	err = archive.Query(cmd.Context(), store, ask, func(r *archive.Row) error {
		if limit > 0 && p.printed >= limit {
			return errEnough
		}
		end() // so that the bar and the events do not mix
		return p.print(r)
	}, show)
	end()
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	return p.end()
}

// filterOf reads the flags.
func filterOf(cmd *cobra.Command) (ask archive.Filter, err error) {
	text := func(flag string) string { return cmd.Flag(flag).Value.String() }
	ask = archive.Filter{Domain: text("domain"), Rule: text("rule"), Outcome: text("outcome"), Region: regionOf(cmd)}
	ask.From, err = momentOf(text("from"))
	if err == nil {
		ask.To, err = momentOf(text("to"))
	}
	if err != nil || text("identity") == "" {
		return ask, err
	}
	kind, value, found := strings.Cut(text("identity"), ":")
	if !found || value == "" {
		return ask, fmt.Errorf("--identity %q must be KIND:VALUE, such as user:ann", text("identity"))
	}
	shared, err := settings.FromEnvironment(os.Environ(), "spillway")
	ask.Identities = []string{text("identity"), descriptors.NewRecordKeys("", []byte(shared.Store.KeySecret)).Identity(kind, value)}
	return ask, err
}

// momentOf reads a day or a time; an empty text is none.
func momentOf(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		at, err := time.Parse(layout, text)
		if err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q must be a day such as 2026-05-01 or a time such as 2026-05-01T10:00:00Z", text)
}

// eventPrinter prints events one by one: lines, the items of one JSON list, or documents of YAML.
type eventPrinter struct {
	*printer
	printed int64
}

// eventView is an event with its time as people read it.
type eventView struct {
	At string `json:"at"`
	*archive.Row
}

func (p *eventPrinter) print(r *archive.Row) error {
	p.printed++
	view := eventView{r.Time().Format("2006-01-02T15:04:05.000000Z"), r}
	switch p.format {
	case "json":
		text, err := json.Marshal(view)
		before := ",\n"
		if p.printed == 1 {
			before = "[\n"
		}
		_, _ = fmt.Fprintf(p.out, "%s  %s", before, text)
		return err
	case "yaml":
		p.line("---")
		return p.value(view, nil)
	}
	dash := func(text string) string { return either(plain(text), "-") }
	_, err := fmt.Fprintf(p.out, "%s  %s %d  %s  rule %s  %s  %s %s  %d of %d  cost %d  region %s\n", view.At,
		plain(r.Outcome), r.Status, plain(r.Domain), dash(r.Rule), dash(r.Identity), dash(r.Method), dash(r.Endpoint), r.Count,
		r.CountLimit, r.Cost, dash(r.Region))
	return err
}

// end completes the list.
func (p *eventPrinter) end() error {
	text := ""
	if p.format == "json" {
		text = map[bool]string{true: "[]\n", false: "\n]\n"}[p.printed == 0]
	}
	_, err := fmt.Fprint(p.out, text)
	return err
}
