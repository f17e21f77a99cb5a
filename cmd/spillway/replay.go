package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/whatif/replay"
)

// knownFields are the fields with a flag of their own, and its help.
var knownFields = [...]struct{ name, about string }{
	{"user", "the field that holds the user; a hyphen: none does"},
	{"tenant", "the field that holds the tenant; a hyphen: none does"},
	{"tier", "the field that holds the tier; a hyphen: none does"},
	{"cost", "the field that holds what a request cost, such as its tokens"},
}

// replayFlags are the flags of replay.
type replayFlags struct {
	rules, against           []string
	merge                    bool
	fields, headers, entries map[string]string
	descriptors              []string
	known                    [4]string // by knownFields
	failIf                   []string
	memory                   string
	reorder, rows            uint
	report, refusals         string
}

const aboutReplay = `replay decides the requests of an access log under a rule set, on the log's own clock: who would
have been limited, when, and by which rule. With --against it decides them under a second rule set too, and reports
the difference. It decides as a sidecar does.

A log has Envoy's text format, Istio's, the common or combined format of nginx and Apache, or one JSON object per line,
and may be compressed by gzip. Several logs are merged by time; - is the standard input. The fields are guessed by their
usual names (start_time, time_iso8601, method, request, path, remote_addr, user, tenant, …), and the report shows what
was taken for what; --field names others, with a dot for a field within an object.

The requests are those that Envoy's ext_authz filter would ask about. Logs do not hold credentials: --user, --tenant
and --tier name the fields that hold who asked, and --header those that hold request headers. With --descriptor they
are those of Envoy's rate limit filter: a value in braces is that of a field, and a descriptor is left out where a
request lacks it. Rules that applied to no request are listed with the reason, and the flag that would help.

--cost names the field with what a request cost. Limits with post_paid are charged so much after the request; where the
rules have none of them, every limit is.

-o html is one page with charts. Lines that cannot be read are skipped and counted; the exit code is 4 then. With
--fail-if it is 1 where one of the conditions holds, and 2 where a field that a flag names is in no line, or no rule
applied to any request. Beyond --memory the counters nearest to their end are forgotten,
and counted in the report.`

func newReplay() *cobra.Command {
	f := &replayFlags{}
	cmd := &cobra.Command{
		Use:   "replay --rules FILE|FOLDER [--against FILE|FOLDER] LOG...",
		Short: "Decide the requests of an access log under a rule set",
		Long:  aboutReplay,
		Example: `  spillway replay --rules rules/ access.log
  spillway replay --rules rules/ --against new-rules/ -o html --report report.html access.log.gz
  spillway replay --rules rules/ --against new-rules/ --fail-if 'newly_refused>1%' access.log
  spillway replay --rules shop.yaml --user jwt_sub --descriptor 'user={jwt_sub},path={path}' access.json`,
		Args: between(1, many),
		RunE: printing(f.replay),
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.rules, "rules", nil, "rule files or folders")
	flags.StringSliceVar(&f.against, "against", nil, "rule files or folders of a second rule set, to compare with")
	addMerge(cmd, &f.merge)
	flags.StringToStringVar(&f.fields, "field", nil,
		"NAME=FIELD: the field that holds time, method, path, request, host, x_forwarded_for, peer or code")
	for i, field := range knownFields {
		flags.StringVar(&f.known[i], field.name, "", field.about)
	}
	flags.StringArrayVar(&f.failIf, "fail-if", nil,
		"exit with 1 if this holds: refused, newly_refused or newly_admitted, above a number or a percentage of the "+
			"requests, as in refused>1%; may be repeated")
	flags.StringToStringVar(&f.headers, "header", nil, "NAME=FIELD: the field that holds a request header")
	flags.StringToStringVar(&f.entries, "entry", nil, "KEY=FIELD: the field that holds a context extension")
	flags.StringArrayVar(&f.descriptors, "descriptor", nil,
		"KEY=TEXT,KEY={FIELD},…: a descriptor of each request; may be repeated")
	flags.StringVar(&f.memory, "memory", "256MiB", "memory that the counters of one rule set take at most")
	flags.UintVar(&f.reorder, "reorder", 4096, "lines of a log that are put in order of time at once")
	flags.UintVar(&f.rows, "rows", 20, "rows of those who were limited, in the text")
	flags.StringVar(&f.report, "report", "", "write the report to this file instead of printing it")
	flags.StringVar(&f.refusals, "refusals", "", "write each refusal as a line of JSON to this file")
	addProgress(cmd)
	must(cmd.MarkFlagRequired("rules"))
	must(cmd.RegisterFlagCompletionFunc("rules", ruleFiles))
	must(cmd.RegisterFlagCompletionFunc("against", ruleFiles))
	return cmd
}

func (f *replayFlags) replay(cmd *cobra.Command, out *printer, logs []string) error {
	cfg := replay.Config{Logs: logs, In: cmd.InOrStdin(), Rules: f.rules, Against: f.against, MergeDomains: f.merge,
		Domain: cmd.Flag("domain").Value.String(), Reorder: int(f.reorder)}
	bounds, err := parseBounds(f.failIf, len(f.against) > 0)
	if err != nil {
		return err
	}
	cfg.MaxBytes, err = parseBytes(f.memory)
	if err == nil {
		err = f.mapping(&cfg.Mapping)
	}
	if err != nil {
		return err
	}
	report, err := f.decideLogs(cmd, cfg)
	if err == nil {
		err = f.show(out, report)
	}
	if err != nil {
		return err
	}
	broken := report.Log.Broken
	if broken > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "spillway: the log has broken lines, which were skipped: %d\n", broken)
	}
	err = judge(cmd.ErrOrStderr(), bounds, report)
	if err == nil && broken > 0 {
		err = exit(exitBroken)
	}
	return err
}

// decideLogs replays, with progress and a file of refusals where they are wanted.
func (f *replayFlags) decideLogs(cmd *cobra.Command, cfg replay.Config) (*replay.Report, error) {
	bar, err := newBar(cmd.Flag("progress").Value.String(), cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	cfg.OnProgress = bar.show
	refusals, err := createFile(f.refusals)
	if err != nil {
		return nil, err
	}
	if f.refusals != "" {
		encoder := json.NewEncoder(refusals)
		cfg.OnRefusal = func(r replay.Refusal) error { return encoder.Encode(r) }
	}
	report, err := replay.Run(cfg)
	bar.end()
	return report, errors.Join(err, refusals.Close())
}

// show writes the report where it is wanted.
func (f *replayFlags) show(out *printer, report *replay.Report) error {
	if f.report == "" {
		return f.writeTo(out, report)
	}
	file, err := createFile(f.report)
	if err != nil {
		return err
	}
	to := *out
	to.raw, to.out = file, file
	return errors.Join(f.writeTo(&to, report), file.Close())
}

func (f *replayFlags) writeTo(out *printer, report *replay.Report) error {
	if out.format == "html" {
		return report.WriteHTML(out.raw)
	}
	var err error
	return errors.Join(out.value(report, func() { err = report.WriteText(out.out, int(f.rows)) }), err)
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

// mapping reads the flags about the fields of a log.
func (f *replayFlags) mapping(m *replay.Mapping) error {
	m.Fields = map[string]string{}
	maps.Copy(m.Fields, f.fields)
	for i, field := range knownFields {
		if f.known[i] != "" {
			m.Fields[field.name] = f.known[i]
		}
	}
	m.Headers, m.Entries = pairs(f.headers), pairs(f.entries)
	for _, text := range f.descriptors {
		parts, err := parseDescriptor(text)
		if err != nil {
			return err
		}
		m.Descriptors = append(m.Descriptors, parts)
	}
	return nil
}

func pairs(fields map[string]string) (all []replay.Pair) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		all = append(all, replay.Pair{Name: name, Field: fields[name]})
	}
	return all
}

// parseDescriptor reads KEY=TEXT,KEY={FIELD},…
func parseDescriptor(text string) (parts []replay.Part, err error) {
	for entry := range strings.SplitSeq(text, ",") {
		key, value, found := strings.Cut(entry, "=")
		if !found || key == "" || value == "" {
			return nil, fmt.Errorf("--descriptor %q: write KEY=TEXT or KEY={FIELD}, with commas between entries", text)
		}
		part := replay.Part{Key: key, Text: value}
		if strings.HasPrefix(value, "{") && strings.HasSuffix(value, "}") {
			part = replay.Part{Key: key, Field: value[1 : len(value)-1]}
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// parseBytes reads an amount of memory.
func parseBytes(text string) (int64, error) {
	factor, digits := int64(1), text
	for i, unit := range []string{"KiB", "MiB", "GiB"} {
		if rest, found := strings.CutSuffix(text, unit); found {
			factor, digits = 1<<(10*(i+1)), rest
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 1 || n > 1<<42/factor {
		return 0, fmt.Errorf("--memory %q: write an amount such as 256MiB or 2GiB", text)
	}
	return n * factor, nil
}
