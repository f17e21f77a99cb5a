package replay

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is what a replay found.
type Report struct {
	Log      LogReport   `json:"log"`
	Rules    SideReport  `json:"rules"`
	Against  *SideReport `json:"against,omitempty"`
	Changes  *Changes    `json:"changes,omitempty"` // from rules to against
	Timeline Timeline    `json:"timeline"`
}

// LogReport is what the logs hold.
type LogReport struct {
	Files    []string     `json:"files"`
	Lines    int64        `json:"lines"`
	Requests int64        `json:"requests"`
	Skipped  int64        `json:"skipped"` // lines about something else than requests
	Broken   int64        `json:"broken"`  // lines that cannot be read
	Samples  []BrokenLine `json:"broken_lines,omitempty"`
	// requests that came too late to be put in order, and were decided at the time of those around them
	Late        int64         `json:"late"`
	Answered429 int64         `json:"answered_429"` // requests whose clients got a 429 when the log was written
	From        time.Time     `json:"from,omitzero"`
	To          time.Time     `json:"to,omitzero"`
	Missing     []string      `json:"missing_fields,omitempty"` // fields that were asked for and that no line has
	Formats     []string      `json:"formats,omitempty"`        // of the lines, the most frequent first
	Fields      []FieldReport `json:"fields,omitempty"`         // what was read from where
}

// FieldReport is what a field of the log was taken for.
type FieldReport struct {
	Is    string `json:"is"` // as --field calls it
	Field string `json:"field"`
}

// Never is a rule that applied to no request.
type Never struct {
	Rule string `json:"rule"`
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	Why  string `json:"why"` // and the flag that would help
}

// BrokenLine is a line that cannot be read.
type BrokenLine struct {
	File   string `json:"file"`
	Line   int64  `json:"line"`
	Reason string `json:"reason"`
	Text   string `json:"text,omitempty"` // its beginning, quoted
}

// SideReport is what one rule set does to the requests.
type SideReport struct {
	Paths    []string         `json:"paths"`
	Hash     string           `json:"hash"`
	Domain   string           `json:"domain"`
	Refused  int64            `json:"refused"` // blocked and malformed ones included
	Outcomes map[string]int64 `json:"outcomes"`
	Rules    []RuleReport     `json:"rules"`
	Never    []Never          `json:"never,omitempty"`
	Who      []Limited        `json:"who"` // the most refused first
	// there were more, and counts of these may be too high by Over
	WhoIncomplete bool  `json:"who_incomplete"`
	Evicted       int64 `json:"evicted"` // counters that were forgotten early for want of memory
}

// RuleReport is what one rule does.
type RuleReport struct {
	Rule     string     `json:"rule"`
	Scope    string     `json:"scope,omitempty"`
	File     string     `json:"file,omitempty"`
	Line     int        `json:"line,omitempty"`
	Counted  int64      `json:"counted"`  // requests
	Refused  int64      `json:"refused"`  //
	Shadowed int64      `json:"shadowed"` // requests that it would have refused, were it not only logged
	First    *time.Time `json:"first,omitempty"`
	Last     *time.Time `json:"last,omitempty"`
}

// Limited is one that was refused.
type Limited struct {
	Who      string    `json:"who"`
	Rule     string    `json:"rule"`
	Requests int64     `json:"requests"`
	Over     int64     `json:"over,omitempty"` // of Requests: what may have been of others
	First    time.Time `json:"first"`
	Last     time.Time `json:"last"`
}

// Changes is what the second rule set does otherwise.
type Changes struct {
	RefusedByBoth    int64     `json:"refused_by_both"`
	RefusedByNeither int64     `json:"refused_by_neither"`
	NewlyRefused     int64     `json:"newly_refused"`
	NewlyAdmitted    int64     `json:"newly_admitted"`
	OtherRule        int64     `json:"other_rule"` // of those that both refuse
	Limited          []Limited `json:"limited"`    // who is refused by the second alone
	Freed            []Limited `json:"freed"`      // who is refused by the first alone
	Incomplete       bool      `json:"incomplete"` // there were more
}

// Timeline is what happened when: one point after the other, each as long.
type Timeline struct {
	Start   time.Time `json:"start,omitzero"`
	Seconds int64     `json:"seconds"`
	Points  []Point   `json:"points"`
}

// Point is one span of time.
type Point struct {
	Requests     int64            `json:"requests"`
	Refused      int64            `json:"refused"`
	Rules        map[string]int64 `json:"rules,omitempty"`
	Against      *int64           `json:"against,omitempty"`
	AgainstRules map[string]int64 `json:"against_rules,omitempty"`
}

// WriteText writes the report for people, with at most that many rows of those who were limited.
func (r *Report) WriteText(out io.Writer, rows int) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	r.Log.write(w)
	r.Timeline.write(w)
	r.Rules.write(w, "Rules", rows)
	if r.Against != nil {
		r.Against.write(w, "Against", rows)
		r.Changes.write(w, rows)
	}
	return w.Flush()
}

func (l *LogReport) write(w io.Writer) {
	fmt.Fprintf(w, "Log: %s\n", strings.Join(l.Files, ", "))
	fmt.Fprintf(w, "  lines: %d, requests: %d", l.Lines, l.Requests)
	if l.Requests > 0 {
		fmt.Fprintf(w, " from %s to %s", clock(l.From), clock(l.To))
	}
	fmt.Fprintln(w)
	if len(l.Formats) > 0 {
		fmt.Fprintf(w, "  read as: %s; %s\n", strings.Join(l.Formats, ", "), l.taken())
	}
	for _, one := range []struct {
		n    int64
		what string
	}{
		{l.Answered429, "requests that were answered with 429 when the log was written"},
		{l.Skipped, "lines about something else than requests"},
		{l.Late, "requests that came too late to be put in order and were decided at the time of those around them " +
			"(--reorder)"},
		{l.Broken, "broken lines, which were skipped"},
	} {
		if one.n > 0 {
			fmt.Fprintf(w, "  %s: %d\n", one.what, one.n)
		}
	}
	for _, b := range l.Samples {
		fmt.Fprintf(w, "    %s:%d: %s: %s\n", b.File, b.Line, b.Reason, b.Text)
	}
	for _, field := range l.Missing {
		fmt.Fprintf(w, "  no line has the field %s\n", field)
	}
}

// taken lists what was read from which field.
func (l *LogReport) taken() string {
	var all []string
	for _, f := range l.Fields {
		all = append(all, f.Is+"="+visible(f.Field))
	}
	return strings.Join(all, ", ")
}

// textPoints is how many points of a timeline are in a line of text.
const textPoints = 80

// write draws the timeline in two lines, or three.
func (t *Timeline) write(w io.Writer) {
	if len(t.Points) == 0 {
		return
	}
	each := (len(t.Points) + textPoints - 1) / textPoints
	lines := []string{"requests", "refused", "refused against"}
	sums := make([][]int64, len(lines))
	for i, p := range t.Points {
		counts := []int64{p.Requests, p.Refused, 0}
		if p.Against != nil {
			counts[2] = *p.Against
		}
		for line, n := range counts {
			if i%each == 0 {
				sums[line] = append(sums[line], 0)
			}
			sums[line][i/each] += n
		}
	}
	fmt.Fprintf(w, "\nWhen: from %s on, one sign for %v\n", clock(t.Start),
		time.Duration(int64(each)*t.Seconds)*time.Second)
	if t.Points[0].Against == nil {
		lines = lines[:2]
	}
	for line, name := range lines {
		fmt.Fprintf(w, "  %-15s  %s  at most %d\n", name, drawn(sums[line]), slices.Max(sums[line]))
	}
}

// drawn is a row of bars, each as high as its number beside the largest.
func drawn(counts []int64) string {
	bars := []rune("▁▂▃▄▅▆▇█")
	most := max(slices.Max(counts), 1)
	var text strings.Builder
	for _, n := range counts {
		switch {
		case n == 0:
			text.WriteByte('.')
		default:
			text.WriteRune(bars[(n*int64(len(bars))-1)/most])
		}
	}
	return text.String()
}

func (s *SideReport) write(w io.Writer, title string, rows int) {
	fmt.Fprintf(w, "\n%s: %s (domain %s)\n", title, strings.Join(s.Paths, ", "), s.Domain)
	total := int64(0)
	for _, n := range s.Outcomes {
		total += n
	}
	fmt.Fprintf(w, "  %d of %d requests refused (%s)\n", s.Refused, total, percent(s.Refused, total))
	if s.Evicted > 0 {
		fmt.Fprintf(w,
			"  %d counters were forgotten early for want of memory: some requests were admitted for that "+
				"(--memory)\n", s.Evicted)
	}
	if len(s.Rules) > 0 {
		fmt.Fprint(w, "\n  RULE\tSCOPE\tCOUNTED\tREFUSED\tWOULD REFUSE\tFIRST\tLAST\n")
	}
	for _, r := range s.Rules {
		first, last := "", ""
		if r.First != nil {
			first, last = clock(*r.First), clock(*r.Last)
		}
		fmt.Fprintf(w, "  %s\t%s\t%d\t%d\t%d\t%s\t%s\n", visible(r.Rule), r.Scope, r.Counted, r.Refused, r.Shadowed,
			first, last)
	}
	for i, n := range s.Never {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "  %s never applied: %s\n", visible(n.Rule), visible(n.Why))
	}
	writeLimited(w, "WHO IS REFUSED", s.Who, rows, s.WhoIncomplete)
}

func (c *Changes) write(w io.Writer, rows int) {
	fmt.Fprintf(w,
		"\nDifference: %d newly refused, %d newly admitted, %d refused by both (%d of them by another rule), %d by "+
			"neither\n",
		c.NewlyRefused, c.NewlyAdmitted, c.RefusedByBoth, c.OtherRule, c.RefusedByNeither)
	writeLimited(w, "NEWLY REFUSED", c.Limited, rows, c.Incomplete)
	writeLimited(w, "NEWLY ADMITTED", c.Freed, rows, c.Incomplete)
}

func writeLimited(w io.Writer, title string, all []Limited, rows int, incomplete bool) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(w, "\n  %s\tBY\tREQUESTS\tFIRST\tLAST\n", title)
	for _, l := range all[:min(len(all), rows)] {
		count := fmt.Sprint(l.Requests)
		if l.Over > 0 {
			count = fmt.Sprintf("%d to %d", l.Requests-l.Over, l.Requests)
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\n", visible(l.Who), visible(l.Rule), count, clock(l.First), clock(l.Last))
	}
	switch {
	case incomplete:
		fmt.Fprintf(w, "  and more than %d others\n", len(all)-min(len(all), rows))
	case len(all) > rows:
		fmt.Fprintf(w, "  and %d others\n", len(all)-rows)
	}
}

func clock(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05Z") }

func percent(n, of int64) string {
	if of == 0 {
		return "0 %"
	}
	return fmt.Sprintf("%.2f %%", 100*float64(n)/float64(of))
}

// visible writes a text of clients without what could move the cursor of a terminal.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0xfffd {
			return '?'
		}
		return r
	}, text)
}
