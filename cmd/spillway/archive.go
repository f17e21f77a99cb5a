package main

import (
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/archive"
	"github.com/spillway-mesh/spillway/replay"
	"github.com/spillway-mesh/spillway/settings"
)

func newArchive() *cobra.Command {
	cmd := group("archive", "", "Read, check, restore and run the archive of events",
		`Work with the archive of events: Parquet files in a folder or an S3-compatible store, by region, year, month and day.
docs/explain/archive.md explains it. list, verify and query need the files alone; restore and run also need
CONTROL_DATABASE_URL.`)
	cmd.PersistentFlags().String("archive", "", "a folder, or s3://bucket/prefix; CONTROL_ARCHIVE sets the default")
	list := &cobra.Command{
		Use: "list [DAY|MONTH]", Short: "List the files of the archive", Example: "  spillway archive list 2026-05",
		Args: between(0, 1), RunE: listArchive,
		Long: "List the files of the archive, by their manifests: the day, the region, how many rows and bytes each has.",
	}
	addRegion(list)
	verify := &cobra.Command{
		Use: "verify [DAY|MONTH]", Short: "Read files of the archive, and compare them with their manifests",
		Example: "  spillway archive verify 2026-05", Args: between(0, 1), RunE: verifyArchive,
		Long: `Read every row of the files, and compare their number and checksum with the manifests. It exits with 1 if a file is
missing or differs.`,
	}
	restore := &cobra.Command{
		Use: "restore DAY|MONTH", Short: "Load a day or a month into the table events_restored", Args: between(1, 1),
		Example: "  spillway archive restore 2026-05-03", RunE: restoreArchive,
		Long: `Load files into the table events_restored, with the columns of events, in place of what it has of those days. A file
that differs from its manifest is refused. Afterwards empty the table: TRUNCATE events_restored.`,
	}
	for _, one := range []*cobra.Command{verify, restore} {
		addRegion(one)
		addProgress(one)
	}
	run := &cobra.Command{
		Use: "run", Short: "Archive what is old enough, now", Args: between(0, 0), RunE: runArchive,
		Example: "  CONTROL_ARCHIVE=/var/lib/spillway/archive spillway archive run",
		Long: `Do what the leading control does every hour: archive partitions of events older than CONTROL_KEEP_EVENTS, check and
drop them, and delete files older than CONTROL_KEEP_ARCHIVES.`,
	}
	cmd.AddCommand(list, verify, restore, newArchiveQuery(), run)
	return cmd
}

func addRegion(cmd *cobra.Command) { cmd.Flags().String("region", "", "files of this region only") }

// openStore opens the archive that the flag or the environment names.
func openStore(cmd *cobra.Command) (archive.Store, settings.Control, error) {
	own, err := settings.ArchiveFromEnvironment(os.Environ())
	if err != nil {
		return nil, own, err
	}
	own.Archive = either(cmd.Flag("archive").Value.String(), own.Archive)
	if own.Archive == "" {
		return nil, own, errors.New("which archive? Set CONTROL_ARCHIVE, or use --archive")
	}
	store, err := archive.OpenStore(archivePlace(&own))
	return store, own, err
}

// archivePlace is where the settings put the archive.
func archivePlace(own *settings.Control) archive.Place {
	return archive.Place{
		At: own.Archive, Endpoint: own.S3Endpoint, Region: own.S3Region, AccessKey: own.S3AccessKey, SecretKey: own.S3SecretKey,
	}
}

// openArchiver opens the archive with the database.
func openArchiver(cmd *cobra.Command) (*archive.Archiver, error) {
	store, own, err := openStore(cmd)
	if err != nil {
		return nil, err
	}
	if own.Database == "" {
		return nil, errors.New("CONTROL_DATABASE_URL is missing: set it to postgres://user:password@host:port/name")
	}
	return newArchiver(store, &own, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
}

func newArchiver(store archive.Store, own *settings.Control, log *slog.Logger) (*archive.Archiver, error) {
	return archive.New(archive.Config{
		DatabaseURL: own.Database, Store: store, KeepEvents: time.Duration(own.KeepEvents),
		KeepArchives: time.Duration(own.KeepArchives), Log: log,
	})
}

// daysOf reads the arguments (none, a day or a month), and how to print the answer.
func daysOf(cmd *cobra.Command, args []string) (days archive.Days, out *printer, err error) {
	out, err = newPrinter(cmd)
	if err == nil && len(args) > 0 {
		days, err = archive.ParseDays(args[0])
	}
	days.Region = regionOf(cmd)
	return days, out, err
}

// regionOf is the region that was asked for, nil for all.
func regionOf(cmd *cobra.Command) *string {
	if !cmd.Flags().Changed("region") {
		return nil
	}
	region := cmd.Flag("region").Value.String()
	return &region
}

// archiveBar is the progress bar of a command.
func archiveBar(cmd *cobra.Command) (show func(archive.Progress), end func(), err error) {
	bar, err := newBar(cmd.Flag("progress").Value.String(), cmd.ErrOrStderr())
	if err != nil {
		return nil, nil, err
	}
	return func(p archive.Progress) {
		bar.show(replay.Progress{Lines: p.Rows, Bytes: p.Rows, Size: p.Of})
	}, bar.end, nil
}

func listArchive(cmd *cobra.Command, args []string) error {
	days, out, err := daysOf(cmd, args)
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
	return out.value(append([]archive.Manifest{}, all...), func() {
		var rows []object
		for i := range all {
			m := &all[i]
			rows = append(rows, object{"day": m.Day, "region": m.Region, "rows": m.Rows, "bytes": m.Bytes, "path": m.Path})
		}
		out.table(rows, columns("DAY day | REGION region | ROWS rows | BYTES bytes | PATH path"))
	})
}

func verifyArchive(cmd *cobra.Command, args []string) error {
	days, out, err := daysOf(cmd, args)
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
	all := []archive.Verdict{}
	wrong, err := archive.Verify(cmd.Context(), store, days, show, func(v archive.Verdict) error {
		all = append(all, v)
		return nil
	})
	end()
	if err != nil {
		return err
	}
	err = out.value(all, func() {
		var rows int64
		for i := range all {
			rows += all[i].Rows
			if all[i].Problem != "" {
				out.line("%s: %s", plain(all[i].Path), plain(all[i].Problem))
			}
		}
		out.line("%d files, %d rows, %d files that differ", len(all), rows, wrong)
	})
	if err == nil && wrong > 0 {
		err = exit(exitFound)
	}
	return err
}

func restoreArchive(cmd *cobra.Command, args []string) error {
	days, out, err := daysOf(cmd, args)
	if err != nil {
		return err
	}
	a, err := openArchiver(cmd)
	if err != nil {
		return err
	}
	defer a.Close()
	show, end, err := archiveBar(cmd)
	if err != nil {
		return err
	}
	done, err := a.Restore(cmd.Context(), days, show)
	end()
	if err != nil {
		return err
	}
	return out.value(done, func() { out.line("%d rows of %d files are in events_restored", done.Rows, done.Files) })
}

func runArchive(cmd *cobra.Command, _ []string) error {
	out, err := newPrinter(cmd)
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
	return out.value(done, func() {
		out.line("%d partitions archived (%d files, %d rows), %d old files deleted", len(done.Partitions), done.Files, done.Rows,
			done.Deleted)
	})
}
