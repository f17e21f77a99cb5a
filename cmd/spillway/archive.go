package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/control/archive"
	"github.com/spillway-mesh/spillway/sidecar/settings"
	"github.com/spillway-mesh/spillway/whatif/replay"
)

func newArchive() *cobra.Command {
	cmd := &cobra.Command{
		Use: "archive", Short: "Read, check, restore and run the archive of events", Args: between(0, 0),
		Long: `Work with the archive of events: Parquet files in a folder or an S3-compatible store, by
region, year, month and day. docs/explain/archive.md explains it. list, verify and query need the files alone;
restore and run also need CONTROL_DATABASE_URL.`,
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

// daysOf reads the arguments (none, a day or a month), and how to print the answer.
func daysOf(cmd *cobra.Command, args []string) (days archive.Days, format string, err error) {
	format, err = outputOf(cmd)
	if err == nil && len(args) > 0 {
		days, err = archive.ParseDays(args[0])
	}
	days.Region = regionOf(cmd)
	return days, format, err
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
			days, format, err := daysOf(cmd, args)
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
		Long: `Read every row of the files, and compare their number and checksum with the manifests.
It exits with 1 if a file is missing or differs.`,
		RunE: runVerify,
	}
	addDays(cmd)
	return cmd
}

func runVerify(cmd *cobra.Command, args []string) error {
	days, format, err := daysOf(cmd, args)
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
		Long: `Load files into the table events_restored, with the columns of events, in place of what it
has of those days. A file that differs from its manifest is refused. Afterwards empty the table: TRUNCATE
events_restored.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			days, format, err := daysOf(cmd, args)
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
		Long: `Do what the leading control does every hour: archive partitions of events older than CONTROL_KEEP_EVENTS,
check and drop them, and delete files older than CONTROL_KEEP_ARCHIVES.`,
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
