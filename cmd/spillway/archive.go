package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/control/archive"
	"github.com/spillway-mesh/spillway/sidecar/settings"
	"github.com/spillway-mesh/spillway/whatif/replay"
)

func newArchive() *cobra.Command {
	cmd := group("archive", "", "Read, check, restore and run the archive of events",
		`Work with the archive of events: Parquet files in a folder or an S3-compatible store, by region, year, month
and day. docs/explain/archive.md explains it. list, verify and query need the files alone; restore and run also need
CONTROL_DATABASE_URL.`)
	cmd.PersistentFlags().String("archive", "", "a folder, or s3://bucket/prefix; CONTROL_ARCHIVE sets the default")
	query := archiveVerb("query", "Print events from the files of the archive", queryArchive,
		"query --domain shop --identity user:ann --outcome refused --from 2026-05-01 --to 2026-06-01",
		`Print events straight from the files, without a database. With KEY_SECRET set as the sidecars have it,
--identity also finds events that hold its HMAC.`)
	addFilter(query)
	verify := archiveVerb("verify [DAY|MONTH]", "Read files of the archive, and compare them with their manifests",
		verifyArchive,
		"verify 2026-05",
		`Read every row of the files, and compare their number and checksum with the manifests. It exits with 1 if a
file is missing or differs.`)
	restore := archiveVerb("restore DAY|MONTH", "Load a day or a month into the table events_restored", restoreArchive,
		"restore 2026-05-03",
		`Load files into the table events_restored, with the columns of events, in place of what it has of those days. A
file that differs from its manifest is refused. Afterwards empty the table: TRUNCATE events_restored.`)
	list := archiveVerb("list [DAY|MONTH]", "List the files of the archive", listArchive, "list 2026-05",
		"List the files of the archive, by their manifests: the day, the region, how many rows and bytes each has.")
	for _, one := range []*cobra.Command{query, verify, restore, list} {
		one.Flags().String("region", "", "files of this region only")
		if one != list {
			addProgress(one)
		}
	}
	cmd.AddCommand(list, verify, restore, query, archiveVerb("run", "Archive what is old enough, now", runArchive,
		"run",
		`Do what the leading control does every hour: archive partitions of events older than CONTROL_KEEP_EVENTS, check
and drop them, and delete files older than CONTROL_KEEP_ARCHIVES.`))
	return cmd
}

// archiveCall is one run of a command about the archive.
type archiveCall struct {
	*printer
	cmd   *cobra.Command
	days  archive.Days
	own   settings.Control
	store archive.Store
	bar   *bar
}

// archiveVerb makes a command that opens the archive, for the days that its argument names.
func archiveVerb(use, short string, run func(a *archiveCall) error, example, long string) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Example: "  spillway archive " + example}
	_, arguments, _ := strings.Cut(use, " ")
	cmd.Args = argumentsOf(arguments)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a := &archiveCall{cmd: cmd, bar: &bar{}}
		err := a.open(args)
		if err != nil {
			return err
		}
		defer a.bar.end()
		return run(a)
	}
	return cmd
}

// open opens the archive that the flag or the environment names.
func (a *archiveCall) open(args []string) (err error) {
	a.printer, err = newPrinter(a.cmd)
	if err == nil && len(args) > 0 {
		a.days, err = archive.ParseDays(args[0])
	}
	if f := a.cmd.Flags().Lookup("region"); f != nil && f.Changed {
		region := f.Value.String()
		a.days.Region = &region
	}
	if f := a.cmd.Flags().Lookup("progress"); f != nil && err == nil {
		a.bar, err = newBar(f.Value.String(), a.cmd.ErrOrStderr())
	}
	if err == nil {
		a.own, err = settings.ArchiveFromEnvironment(os.Environ())
	}
	if err != nil {
		return err
	}
	a.own.Archive = cmp.Or(a.cmd.Flag("archive").Value.String(), a.own.Archive)
	if a.own.Archive == "" {
		return errors.New("which archive? Set CONTROL_ARCHIVE, or use --archive")
	}
	a.store, err = openStore(&a.own)
	return err
}

// show shows how far the work is.
func (a *archiveCall) show(p archive.Progress) {
	a.bar.show(replay.Progress{Lines: p.Rows, Bytes: p.Rows, Size: p.Of})
}

// openStore opens the archive of the settings.
func openStore(own *settings.Control) (archive.Store, error) {
	return archive.OpenStore(archive.Place{
		At: own.Archive, Endpoint: own.S3Endpoint, Region: own.S3Region, AccessKey: own.S3AccessKey,
		SecretKey: own.S3SecretKey,
	})
}

func newArchiver(store archive.Store, own *settings.Control, log *slog.Logger) (*archive.Archiver, error) {
	return archive.New(archive.Config{
		DatabaseURL: own.Database, Store: store, KeepEvents: time.Duration(own.KeepEvents),
		KeepArchives: time.Duration(own.KeepArchives), Log: log,
	})
}

// archiver opens the archive with the database.
func (a *archiveCall) archiver() (*archive.Archiver, error) {
	if a.own.Database == "" {
		return nil, errors.New("CONTROL_DATABASE_URL is missing: set it to postgres://user:password@host:port/name")
	}
	return newArchiver(a.store, &a.own, slog.New(slog.NewTextHandler(a.cmd.ErrOrStderr(), nil)))
}

func listArchive(a *archiveCall) error {
	all, err := archive.List(a.cmd.Context(), a.store, a.days)
	if err != nil {
		return err
	}
	return a.value(append([]archive.Manifest{}, all...), func() {
		var rows []object
		for i := range all {
			m := &all[i]
			rows = append(rows, object{"day": m.Day, "region": m.Region, "rows": m.Rows, "bytes": m.Bytes,
				"path": m.Path})
		}
		a.table(rows, columns("DAY day | REGION region | ROWS rows | BYTES bytes | PATH path"))
	})
}

func verifyArchive(a *archiveCall) error {
	all := []archive.Verdict{}
	wrong, err := archive.Verify(a.cmd.Context(), a.store, a.days, a.show, func(v archive.Verdict) error {
		all = append(all, v)
		return nil
	})
	a.bar.end()
	if err != nil {
		return err
	}
	err = a.value(all, func() {
		var rows int64
		for i := range all {
			rows += all[i].Rows
			if all[i].Problem != "" {
				a.line("%s: %s", plain(all[i].Path), plain(all[i].Problem))
			}
		}
		a.line("%d files, %d rows, %d files that differ", len(all), rows, wrong)
	})
	if err == nil && wrong > 0 {
		err = exit(exitFound)
	}
	return err
}

func restoreArchive(a *archiveCall) error {
	archiver, err := a.archiver()
	if err != nil {
		return err
	}
	defer archiver.Close()
	done, err := archiver.Restore(a.cmd.Context(), a.days, a.show)
	a.bar.end()
	if err != nil {
		return err
	}
	return a.value(done, func() { a.line("%d rows of %d files are in events_restored", done.Rows, done.Files) })
}

func runArchive(a *archiveCall) error {
	archiver, err := a.archiver()
	if err != nil {
		return err
	}
	defer archiver.Close()
	done, err := archiver.Once(a.cmd.Context())
	if err != nil {
		return err
	}
	return a.value(done, func() {
		a.line("%d partitions archived (%d files, %d rows), %d old files deleted", len(done.Partitions), done.Files,
			done.Rows,
			done.Deleted)
	})
}

func addFilter(cmd *cobra.Command) {
	addOptions(cmd, []option{
		{"identity", "KIND:VALUE, such as user:ann", nil}, {"outcome", "what became of the request", nil},
		{"from", "from this day or time on, such as 2026-05-01 or 2026-05-01T10:00:00Z", nil},
		{"to", "before this day or time", nil}, {"rule", "name of the rule that decided", nil},
	})
	cmd.Flags().Int64("limit", 0, "print at most so many; 0: all")
}

// errEnough ends a query that has printed what was asked for.
var errEnough = errors.New("enough")

func queryArchive(a *archiveCall) error {
	ask, err := a.filter()
	if err != nil {
		return err
	}
	limit, _ := a.cmd.Flags().GetInt64("limit")
	p := &eventPrinter{printer: a.printer}
	err = archive.Query(a.cmd.Context(), a.store, ask, func(r *archive.Row) error {
		if limit > 0 && p.printed >= limit {
			return errEnough
		}
		a.bar.end() // so that the bar and the events do not mix
		return p.print(r)
	}, a.show)
	a.bar.end()
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	return p.end()
}

// filter reads the flags.
func (a *archiveCall) filter() (ask archive.Filter, err error) {
	text := func(flag string) string { return a.cmd.Flag(flag).Value.String() }
	err = checkWord("outcome", text("outcome"))
	if err != nil {
		return ask, err
	}
	ask = archive.Filter{Domain: text("domain"), Rule: text("rule"), Outcome: text("outcome"), Region: a.days.Region}
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
	secret := []byte(shared.Store.KeySecret)
	ask.Identities = archive.NamesOf(kind, value, secret)
	return ask, err
}

// momentOf reads a day or a time. An empty text is the zero time.
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
	dash := func(text string) string { return cmp.Or(plain(text), "-") }
	_, err := fmt.Fprintf(p.out, "%s  %s %d  %s  rule %s  %s  %s %s  %d of %d  cost %d  region %s\n", view.At,
		plain(r.Outcome), r.Status, plain(r.Domain), dash(r.Rule), dash(r.Identity), dash(r.Method), dash(r.Endpoint),
		r.Count,
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
