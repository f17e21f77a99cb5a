package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/whatif/replay"
)

// replayFlags are the flags of replay.
type replayFlags struct {
	rules, against               []string
	domain                       string
	merge                        bool
	fields, headers, entries     []string
	descriptors                  []string
	user, tenant, tier           string
	memory                       string
	reorder, rows                uint
	report, refusals, progressed string
}

const aboutReplay = `replay decides the requests of an access log under a rule set, on the log's own clock: who would
have been limited, when, and by which rule. With --against it decides them under a second rule set too, and reports the
difference. It decides as a sidecar does.

A log has Envoy's text format, Istio's, or one JSON object per line, and may be compressed by gzip. Several logs
are merged by time; - is the standard input. In JSON the usual fields are known (start_time, method, path,
authority, x_forwarded_for, downstream_remote_address, response_code, …); --field names others, with a dot for a
field within an object.

The requests are those that Envoy's ext_authz filter would ask about. Logs do not hold credentials: --user, --tenant and --tier name the fields that hold
who asked, and --header those that hold request headers, such as an API key's. With --descriptor they are those of Envoy's rate limit filter: a
value in braces is that of a field, and a descriptor is left out where a request lacks it.

The report is text, JSON, or one HTML page with charts. Lines that cannot be read are skipped and counted, the
first of them shown; the exit code is 4 then. Beyond --memory the counters nearest to their end are forgotten,
and counted in the report.`

func newReplay() *cobra.Command {
	f := &replayFlags{}
	cmd := &cobra.Command{
		Use: "replay --rules FILE|FOLDER [--against FILE|FOLDER] LOG...", Short: "Decide the requests of an access log under a rule set",
		Long: aboutReplay,
		Example: `  spillway replay --rules rules/ access.log
  spillway replay --rules rules/ --against new-rules/ -o html --report report.html access.log.gz
  spillway replay --rules shop.yaml --user jwt_sub --descriptor 'user={jwt_sub},path={path}' access.json`,
		Args: between(1, many),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.rules, "rules", nil, "rule files or folders")
	flags.StringSliceVar(&f.against, "against", nil, "rule files or folders of a second rule set, to compare with")
	flags.StringVar(&f.domain, "domain", "", "the domain of the requests; needed where the rules have several")
	flags.BoolVar(&f.merge, "merge-domains", false, "several files may add to one domain, as with MERGE_DOMAIN_CONFIG")
	flags.StringSliceVar(&f.fields, "field", nil, "NAME=FIELD: the field of JSON lines that holds time, method, path, host, x_forwarded_for, peer or code")
	flags.StringVar(&f.user, "user", "", "the field that holds the user")
	flags.StringVar(&f.tenant, "tenant", "", "the field that holds the tenant")
	flags.StringVar(&f.tier, "tier", "", "the field that holds the tier")
	flags.StringSliceVar(&f.headers, "header", nil, "NAME=FIELD: the field that holds a request header")
	flags.StringSliceVar(&f.entries, "entry", nil, "KEY=FIELD: the field that holds a context extension")
	flags.StringArrayVar(&f.descriptors, "descriptor", nil, "KEY=TEXT,KEY={FIELD},…: a descriptor of each request; may be repeated")
	flags.StringVar(&f.memory, "memory", "256MiB", "memory that the counters of one rule set take at most")
	flags.UintVar(&f.reorder, "reorder", 4096, "lines of a log that are put in order of time at once")
	flags.UintVar(&f.rows, "rows", 20, "rows of those who were limited, in the text")
	flags.StringVar(&f.report, "report", "", "write the report to this file instead of printing it")
	flags.StringVar(&f.refusals, "refusals", "", "write each refusal as a line of JSON to this file")
	flags.StringVar(&f.progressed, "progress", "auto", "show progress on the standard error: auto (on a terminal), always or never")
	must(cmd.MarkFlagRequired("rules"))
	for _, name := range []string{"rules", "against"} {
		must(cmd.RegisterFlagCompletionFunc(name, ruleFiles))
	}
	must(cmd.RegisterFlagCompletionFunc("progress", cobra.FixedCompletions([]string{"auto", "always", "never"}, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

func (f *replayFlags) run(cmd *cobra.Command, logs []string) (err error) {
	format, err := outputOf(cmd)
	if err != nil {
		return err
	}
	cfg := replay.Config{Logs: logs, In: cmd.InOrStdin(), Rules: f.rules, Against: f.against, MergeDomains: f.merge, Domain: f.domain, Reorder: int(f.reorder)}
	cfg.MaxBytes, err = parseBytes(f.memory)
	if err != nil {
		return err
	}
	err = f.mapping(&cfg.Mapping)
	if err != nil {
		return err
	}
	bar, err := newBar(f.progressed, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	cfg.OnProgress = bar.show
	refusals, err := createFile(f.refusals)
	if err != nil {
		return err
	}
	if f.refusals != "" {
		encoder := json.NewEncoder(refusals)
		cfg.OnRefusal = func(r replay.Refusal) error { return encoder.Encode(r) }
	}
	report, err := replay.Run(cfg)
	bar.end()
	err = errors.Join(err, refusals.Close())
	if err != nil {
		return err
	}
	err = f.write(cmd, report, format)
	if err == nil && report.Log.Broken > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "spillway: the log has broken lines, which were skipped: %d\n", report.Log.Broken)
		err = exit(exitBroken)
	}
	return err
}

// write writes the report where it is wanted.
func (f *replayFlags) write(cmd *cobra.Command, report *replay.Report, format string) error {
	if f.report == "" {
		return f.writeTo(cmd.OutOrStdout(), report, format)
	}
	file, err := createFile(f.report)
	if err != nil {
		return err
	}
	return errors.Join(f.writeTo(file, report, format), file.Close())
}

func (f *replayFlags) writeTo(w io.Writer, report *replay.Report, format string) error {
	switch format {
	case "json":
		return printJSON(w, report)
	case "html":
		return report.WriteHTML(w)
	}
	return report.WriteText(w, int(f.rows))
}

// created is a file that is written through a buffer. Without a name nothing is written.
type created struct {
	*bufio.Writer
	file *os.File
}

func createFile(name string) (*created, error) {
	if name == "" {
		return &created{Writer: bufio.NewWriter(io.Discard)}, nil
	}
	file, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	return &created{bufio.NewWriter(file), file}, nil
}

// Close writes what is left.
func (c *created) Close() error {
	if c.file == nil {
		return nil
	}
	return errors.Join(c.Flush(), c.file.Close())
}
