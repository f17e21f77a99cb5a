package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/archive"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/replay"
	"github.com/spillway-mesh/spillway/settings"
)

func newArchive() *cobra.Command {
	cmd := &cobra.Command{
		Use: "archive", Short: "Read, check, restore and run the archive of events", Args: between(0, 0),
		Long: `Work with the archive of events: Parquet files in a folder or an S3-compatible store, by region, year, month and day. CONTROL_ARCHIVE names it, as for
a control; docs/archive.md explains it. list, verify and query need the files alone; restore and run also need CONTROL_DATABASE_URL.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().String("archive", "", "a folder, or s3://bucket/prefix; CONTROL_ARCHIVE sets the default")
	cmd.AddCommand(newArchiveList(), newArchiveVerify(), newArchiveRestore(), newArchiveQuery(), newArchiveRun())
	return cmd
}

// addDays adds the flag of a region, and the progress bar.
func addDays(cmd *cobra.Command) {
	cmd.Flags().String("region", "", "files of this region only")
	cmd.Flags().String("progress", "auto", "show progress on the standard error: auto (on a terminal), always or never")
	must(cmd.RegisterFlagCompletionFunc("progress", cobra.FixedCompletions([]string{"auto", "always", "never"}, cobra.ShellCompDirectiveNoFileComp)))
}

// openStore opens the archive that the flag or the environment names.
func openStore(cmd *cobra.Command) (archive.Store, settings.Control, error) {
	own, err := settings.ArchiveFromEnvironment(os.Environ())
	if err != nil {
		return nil, own, err
	}
	if at := cmd.Flag("archive").Value.String(); at != "" {
		own.Archive = at
	}
	if own.Archive == "" {
		return nil, own, errors.New("which archive? Set CONTROL_ARCHIVE, or use --archive")
	}
	store, err := archive.OpenStore(placeOf(&own))
	return store, own, err
}

// placeOf is where the settings put the archive.
func placeOf(own *settings.Control) archive.Place {
	return archive.Place{At: own.Archive, Endpoint: own.S3Endpoint, Region: own.S3Region, AccessKey: own.S3AccessKey, SecretKey: own.S3SecretKey}
}

// openArchiver opens the archive with the database.
func openArchiver(cmd *cobra.Command) (*archive.Archiver, error) {
	store, own, err := openStore(cmd)
	if err != nil {
		return nil, err
	}
	if own.Database == "" {
		return nil, errors.New("CONTROL_DATABASE_URL is missing: say where PostgreSQL is, as postgres://user:password@host:port/name")
	}
	return newArchiver(store, &own, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
}

func newArchiver(store archive.Store, own *settings.Control, log *slog.Logger) (*archive.Archiver, error) {
	return archive.New(archive.Config{DatabaseURL: own.Database, Store: store, KeepEvents: time.Duration(own.KeepEvents), KeepArchives: time.Duration(own.KeepArchives), Log: log})
}

// daysOf reads the arguments: none, a day or a month.
func daysOf(cmd *cobra.Command, args []string) (days archive.Days, err error) {
	if len(args) > 0 {
		days, err = archive.ParseDays(args[0])
	}
	days.Region = regionOf(cmd)
	return days, err
}

// regionOf is the region that was asked for, nil for all.
func regionOf(cmd *cobra.Command) *string {
	if !cmd.Flags().Changed("region") {
		return nil
	}
	region := cmd.Flag("region").Value.String()
	return &region
}

// progressOf is the bar of a command.
func progressOf(cmd *cobra.Command) (show func(archive.Progress), end func(), err error) {
	bar, err := newBar(cmd.Flag("progress").Value.String(), cmd.ErrOrStderr())
	if err != nil {
		return nil, nil, err
	}
	return func(p archive.Progress) { bar.show(replay.Progress{Lines: p.Rows, Bytes: p.Rows, Size: p.Of}) }, bar.end, nil
}

func newArchiveList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list [DAY|MONTH]", Short: "List the files of the archive", Example: "  spillway archive list 2026-05", Args: between(0, 1),
		Long: "List the files of the archive, by their manifests: the day, the region, how many rows and bytes each has.",
		RunE: func(cmd *cobra.Command, args []string) error {
			format, err := outputOf(cmd)
			if err != nil {
				return err
			}
			days, err := daysOf(cmd, args)
			if err != nil {
				return err
			}
			store, _, err := openStore(cmd)
			if err != nil {
				return err
			}
			all, err := archive.List(cmd.Context(), store, days)
			if err != nil {
				return err
			}
			if format == "json" {
				return printJSON(cmd.OutOrStdout(), append([]archive.Manifest{}, all...))
			}
			t := newTable(cmd.OutOrStdout(), "DAY", "REGION", "ROWS", "BYTES", "PATH")
			for i := range all {
				t.row(all[i].Day, all[i].Region, all[i].Rows, all[i].Bytes, all[i].Path)
			}
			t.end()
			return nil
		},
	}
	cmd.Flags().String("region", "", "files of this region only")
	return cmd
}

func newArchiveVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use: "verify [DAY|MONTH]", Short: "Read files of the archive, and compare them with their manifests", Example: "  spillway archive verify 2026-05", Args: between(0, 1),
		Long: `Read every row of the files, and compare how many there are and their checksum with the manifests. The exit code is 1 where a file is missing or differs.`,
		RunE: runVerify,
	}
	addDays(cmd)
	return cmd
}

func runVerify(cmd *cobra.Command, args []string) error {
	format, err := outputOf(cmd)
	if err != nil {
		return err
	}
	days, err := daysOf(cmd, args)
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
	all := []archive.Verdict{}
	wrong, err := archive.Verify(cmd.Context(), store, days, show, func(v archive.Verdict) error {
		all = append(all, v)
		return nil
	})
	end()
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if format == "json" {
		err = printJSON(out, all)
	} else {
		showVerdicts(out, all, wrong)
	}
	if err == nil && wrong > 0 {
		err = exit(exitFound)
	}
	return err
}

// showVerdicts writes what is wrong, and a sum.
func showVerdicts(out io.Writer, all []archive.Verdict, wrong int) {
	var rows int64
	for i := range all {
		rows += all[i].Rows
		if all[i].Problem != "" {
			fmt.Fprintf(out, "%s: %s\n", plain(all[i].Path), plain(all[i].Problem))
		}
	}
	fmt.Fprintf(out, "%d files, %d rows, %d files that differ\n", len(all), rows, wrong)
}

func newArchiveRestore() *cobra.Command {
	cmd := &cobra.Command{
		Use: "restore DAY|MONTH", Short: "Load a day or a month into the table events_restored", Example: "  spillway archive restore 2026-05-03", Args: between(1, 1),
		Long: `Load files into the table events_restored, which has the columns of events. What the table has of those days is replaced, so that the command may be
repeated. A file that differs from its manifest is refused. Empty the table when you are done: TRUNCATE events_restored.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			format, err := outputOf(cmd)
			if err != nil {
				return err
			}
			days, err := daysOf(cmd, args)
			if err != nil {
				return err
			}
			a, err := openArchiver(cmd)
			if err != nil {
				return err
			}
			defer a.Close()
			show, end, err := progressOf(cmd)
			if err != nil {
				return err
			}
			done, err := a.Restore(cmd.Context(), days, show)
			end()
			if err != nil {
				return err
			}
			if format == "json" {
				return printJSON(cmd.OutOrStdout(), done)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d rows of %d files are in events_restored\n", done.Rows, done.Files)
			return nil
		},
	}
	addDays(cmd)
	return cmd
}

func newArchiveRun() *cobra.Command {
	return &cobra.Command{
		Use: "run", Short: "Archive what is old enough, now", Example: "  CONTROL_ARCHIVE=/var/lib/spillway/archive spillway archive run", Args: between(0, 0),
		Long: `Do what the leading control does every hour: write partitions of events that are older than CONTROL_KEEP_EVENTS into the archive, check them there and drop
them, and delete files that are older than CONTROL_KEEP_ARCHIVES.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := outputOf(cmd)
			if err != nil {
				return err
			}
			a, err := openArchiver(cmd)
			if err != nil {
				return err
			}
			defer a.Close()
			done, err := a.Once(cmd.Context())
			if err != nil {
				return err
			}
			if format == "json" {
				return printJSON(cmd.OutOrStdout(), done)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d partitions archived (%d files, %d rows), %d old files deleted\n", len(done.Partitions), done.Files, done.Rows, done.Deleted)
			return nil
		},
	}
}

func newArchiveQuery() *cobra.Command {
	cmd := &cobra.Command{
		Use: "query", Short: "Print events from the files of the archive", Example: "  spillway archive query --domain shop --identity user:ann --outcome refused --from 2026-05-01 --to 2026-06-01", Args: between(0, 0),
		Long: `Print events straight from the files, as they are read: no database is asked. Filters that are left out match all. An identity is KIND:VALUE, such as user:ann; with
KEY_SECRET set as the sidecars have it, the events that hold its HMAC are found, too.`,
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
