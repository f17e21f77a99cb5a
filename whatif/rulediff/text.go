package rulediff

import (
	"fmt"
	"io"
	"strings"
)

// WriteText writes the difference for people.
func (d *Diff) WriteText(w io.Writer) {
	if d.Empty() {
		fmt.Fprintln(w, "No difference.")
		return
	}
	domain := ""
	for i, c := range d.Changes {
		if c.Domain != domain || i == 0 {
			domain = c.Domain
			fmt.Fprintln(w, strings.TrimSpace("Domain "+domain))
		}
		c.write(w)
	}
	if len(d.Treated) == 0 {
		fmt.Fprintln(w, "\nNo client that was tried is treated differently.")
	} else {
		fmt.Fprintln(w, "\nTreated differently")
	}
	for _, t := range d.Treated {
		fmt.Fprintf(w, "  %s: %s\n", some(t.Who, 8), some(t.Requests, 8))
		fmt.Fprintf(w, "    - %s\n    + %s\n", t.Was, t.Is)
	}
	if d.Truncated {
		fmt.Fprintln(w, "  The rules name more clients and requests than were tried.")
	}
}

func (c *Change) write(w io.Writer) {
	what := strings.TrimSpace(c.What + " " + c.Name)
	fmt.Fprintf(w, "  %-9s  %s (%s:%d)\n", c.Kind, what, c.File, c.Line)
	for _, detail := range c.Details {
		fmt.Fprintf(w, "             %s\n", detail)
	}
}

// some writes the first of a list.
func some(all []string, most int) string {
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}
