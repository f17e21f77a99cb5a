package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"
)

// table collects rows and writes them in columns.
type table struct {
	w *tabwriter.Writer
}

// newTable begins a table with its headings.
func newTable(w io.Writer, headings ...any) table {
	t := table{newColumns(w)}
	t.row(headings...)
	return t
}

// newColumns lines up cells.
func newColumns(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// row adds a row. Texts are shown so that a terminal takes no orders from them.
func (t table) row(cells ...any) {
	line := make([]string, len(cells))
	for i, cell := range cells {
		line[i] = plain(fmt.Sprint(cell))
		if line[i] == "" {
			line[i] = "-"
		}
	}
	fmt.Fprintln(t.w, "  "+strings.Join(line, "\t"))
}

// end writes the table.
func (t table) end() { _ = t.w.Flush() }

// plain is a text without characters that move the cursor or change colours: such a text is quoted.
func plain(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// cleaned is a writer of lines from which a terminal takes no orders, also where a field was not made plain.
type cleaned struct{ to io.Writer }

// Write escapes what is not printable, but ends of lines and tabs.
func (c cleaned) Write(b []byte) (int, error) {
	var line []byte
	for rest := b; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == '\n', r == '\t', unicode.IsPrint(r) && (r != utf8.RuneError || size > 1):
			line = append(line, rest[:size]...)
		case r == utf8.RuneError && size == 1:
			line = fmt.Appendf(line, `\x%02x`, rest[0])
		default:
			quoted := strconv.QuoteRune(r)
			line = append(line, quoted[1:len(quoted)-1]...)
		}
		rest = rest[size:]
	}
	_, err := c.to.Write(line)
	return len(b), err
}

// plainLines is plain for a text of several lines.
func plainLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = plain(lines[i])
	}
	return strings.Join(lines, "\n")
}

// span is a duration in seconds, in the units that people read.
func span(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d <= 0:
		return "now"
	case d < time.Second:
		return max(d.Round(time.Millisecond), time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return shortSpan(d.Round(time.Second))
}

// shortSpan is a duration without the units that are zero at its end.
func shortSpan(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// instant is a time to the second.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// either is the first text, or the second where that is empty.
func either(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// counted is a number of things.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
