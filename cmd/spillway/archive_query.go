package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/control/archive"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/sidecar/settings"
)

func newArchiveQuery() *cobra.Command {
	cmd := &cobra.Command{
		Use: "query", Short: "Print events from the files of the archive", Example: "  spillway archive query --domain shop --identity user:ann --outcome refused --from 2026-05-01 --to 2026-06-01", Args: between(0, 0),
		Long: `Print events straight from the files, without a database. With KEY_SECRET set as the sidecars have it,
--identity also finds events that hold its HMAC.`,
		RunE: runQuery,
	}
	addDays(cmd)
	for _, f := range [][2]string{{"domain", "domain of the rules"}, {"identity", "KIND:VALUE, such as user:ann"}, {"rule", "name of the rule that decided"}, {"outcome", "what became of the request"}, {"from", "from this day or time on, such as 2026-05-01 or 2026-05-01T10:00:00Z"}, {"to", "before this day or time"}} {
		cmd.Flags().String(f[0], "", f[1])
	}
	cmd.Flags().Int64("limit", 0, "print at most so many; 0: all")
	return cmd
}

// errEnough ends a query that has printed what was asked for.
var errEnough = errors.New("enough")

func runQuery(cmd *cobra.Command, _ []string) error {
	format, err := outputOf(cmd)
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
	show, end, err := progressOf(cmd)
	if err != nil {
		return err
	}
	limit, _ := cmd.Flags().GetInt64("limit")
	p := &eventPrinter{out: cmd.OutOrStdout(), json: format == "json"}
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

// eventPrinter prints events one by one: lines, or the items of one JSON list.
type eventPrinter struct {
	out     io.Writer
	json    bool
	printed int64
}

// eventView is an event with its time as people read it.
type eventView struct {
	At string `json:"at"`
	*archive.Row
}

func (p *eventPrinter) print(r *archive.Row) error {
	p.printed++
	at := r.Time().Format("2006-01-02T15:04:05.000000Z")
	if !p.json {
		_, err := fmt.Fprintf(p.out, "%s  %s %d  %s  rule %s  %s  %s %s  %d of %d  cost %d  region %s\n", at, plain(r.Outcome), r.Status, plain(r.Domain), orDash(r.Rule), orDash(r.Identity),
			orDash(r.Method), orDash(r.Endpoint), r.Count, r.CountLimit, r.Cost, orDash(r.Region))
		return err
	}
	text, err := json.Marshal(eventView{at, r})
	if err != nil {
		return err
	}
	before := ",\n"
	if p.printed == 1 {
		before = "[\n"
	}
	_, err = fmt.Fprintf(p.out, "%s  %s", before, text)
	return err
}

// end completes the list.
func (p *eventPrinter) end() error {
	if !p.json {
		return nil
	}
	text := "\n]\n"
	if p.printed == 0 {
		text = "[]\n"
	}
	_, err := fmt.Fprint(p.out, text)
	return err
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return plain(text)
}
