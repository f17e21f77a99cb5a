package descriptors

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spillway-mesh/spillway/limit"
)

// Dump writes one line per limit, sorted, in the form of the reference server's /rlconfig page. A rule's path is its
// metric: "rule", its name, and its limit where it has several. Blocks and allows have no limit and no line.
func (s *Set) Dump(w io.Writer) {
	var lines []string
	for domain, e := range s.Effects() {
		if e.Action == Block || e.Action == Allow || e.Rule == RulePenalty {
			continue
		}
		lines = append(lines, domain+"."+e.line())
	}
	slices.Sort(lines)
	out := bufio.NewWriter(w)
	for _, line := range lines {
		fmt.Fprintln(out, line)
	}
	// Whoever reads a page and goes away needs no answer.
	_ = out.Flush()
}

func (e *Effect) line() string {
	path := strings.Join(e.Metric, ".")
	modes := fmt.Sprintf("shadow_mode: %t, quota_mode: %t", e.Mode == limit.Shadow, e.Mode == limit.Quota)
	if e.Limit.Algorithm == 0 {
		return fmt.Sprintf("%s: unlimited, %s", path, modes)
	}
	text := fmt.Sprintf("%s: unit=%s requests_per_unit=%d, %s", path, e.Unit, e.Limit.Count, modes)
	if e.Multiplier > 1 {
		text += fmt.Sprintf(", unit_multiplier: %d", e.Multiplier)
	}
	if e.Limit.Algorithm != limit.FixedWindow {
		text += ", algorithm: " + e.Limit.Algorithm.String()
	}
	if e.Calendar != 0 {
		text += ", per: " + e.Calendar.String()
	}
	if e.Account != "" {
		text += fmt.Sprintf(", %s: %q", e.Rule, e.Account)
	}
	return text
}
