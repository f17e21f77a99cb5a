package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"golang.org/x/term"
)

// printer writes what a command found: for people as a table, or as JSON or YAML.
type printer struct {
	out    io.Writer // cleaned
	raw    io.Writer
	format string // one of formatsOf
	width  int    // of the terminal; 0: any
	colour bool
}

// column is one column of a table, or one line of facts.
type column struct {
	heading string
	field   string // of the JSON; empty: the whole object
	format  func(value any) string
	kind    kind
}

// kind is what a column has besides its text.
type kind int

const (
	wide  kind = 1 << iota // it is shown with -o wide alone
	state                  // it is coloured
)

// newPrinter returns the printer for the flag --output.
func newPrinter(cmd *cobra.Command) (*printer, error) {
	format, err := cmd.Flags().GetString("output")
	if err != nil {
		return nil, err
	}
	if known := formatsOf(cmd); !slices.Contains(known, format) {
		return nil, fmt.Errorf("%s prints %s, not %q", cmd.Name(), strings.Join(known, ", "), format)
	}
	p := &printer{out: cleaned{cmd.OutOrStdout()}, raw: cmd.OutOrStdout(), format: format}
	if file, is := p.raw.(*os.File); is && term.IsTerminal(int(file.Fd())) {
		p.width, _, err = term.GetSize(int(file.Fd()))
		if err != nil {
			p.width = 0
		}
		p.colour = os.Getenv("NO_COLOR") == ""
	}
	return p, nil
}

// formatsOf are the formats of a command.
func formatsOf(cmd *cobra.Command) []string {
	own := map[string]string{"lint": "sarif", "replay": "html"}[cmd.Name()]
	all := []string{"table", "wide", "json", "yaml", own}
	return all[:4+len(own)/4]
}

func completeOutput(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return formatsOf(cmd), cobra.ShellCompDirectiveNoFileComp
}

// data reports whether programs read the output.
func (p *printer) data() bool { return p.format != "table" && p.format != "wide" }

// value prints a value as JSON or YAML, else for people by show.
func (p *printer) value(value any, show func() error) error {
	if !p.data() {
		return show()
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	if err == nil && p.format == "yaml" {
		return p.yaml(text.Bytes())
	}
	return errors.Join(err, p.write(text.Bytes()))
}

// yaml prints a JSON document as YAML, in its order.
func (p *printer) yaml(document []byte) error {
	var node yaml.Node
	err := yaml.Unmarshal(document, &node)
	if err != nil {
		return err
	}
	inBlocks(&node)
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	err = errors.Join(encoder.Encode(&node), encoder.Close())
	return errors.Join(err, p.write(text.Bytes()))
}

// inBlocks removes the braces of JSON. Texts that a terminal must not read keep their quotes, for the escapes in them.
func inBlocks(node *yaml.Node) {
	if node.Kind != yaml.ScalarNode || plain(node.Value) == node.Value {
		node.Style = 0
	}
	for _, below := range node.Content {
		inBlocks(below)
	}
}

func (p *printer) write(text []byte) error {
	_, err := p.out.Write(text)
	return err
}

// line prints one line.
func (p *printer) line(format string, args ...any) { fmt.Fprintf(p.out, format+"\n", args...) }

// list prints rows under their field.
func (p *printer) list(field string, rows []object, columns []column) error {
	if rows == nil {
		rows = []object{}
	}
	return p.value(object{field: rows}, func() error { return p.table(rows, columns) })
}

// table prints rows in columns. Where the terminal is narrow, columns are left out from the right.
func (p *printer) table(rows []object, columns []column) error {
	columns = slices.DeleteFunc(slices.Clone(columns), func(c column) bool { return c.kind&wide != 0 && p.format != "wide" })
	lines := [][]string{{}}
	for _, c := range columns {
		lines[0] = append(lines[0], c.heading)
	}
	for _, row := range rows {
		cells := make([]string, len(columns))
		for i := range columns {
			cells[i] = either(columns[i].cell(row), "-")
		}
		lines = append(lines, cells)
	}
	widths, shown := p.fit(lines)
	var text strings.Builder
	for at, cells := range lines {
		for i, cell := range cells[:shown] {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2)
			if i == shown-1 {
				pad = ""
			}
			text.WriteString(p.paint(cell, at == 0, columns[i].kind&state != 0) + pad)
		}
		text.WriteByte('\n')
	}
	_, err := io.WriteString(p.raw, text.String()) // each cell is plain
	return err
}

// fit is how wide each column is, and how many there is room for.
func (p *printer) fit(lines [][]string) (widths []int, shown int) {
	total := 0
	for i := range lines[0] {
		width := 0
		for _, cells := range lines {
			width = max(width, utf8.RuneCountInString(cells[i]))
		}
		if p.width > 0 && p.format != "wide" && i > 0 && total+width > p.width {
			return widths, i
		}
		widths, total = append(widths, width), total+width+2
	}
	return widths, len(widths)
}

// bad and good are words that begin cells of a state.
var (
	bad  = []string{"refused", "blocked", "malformed", "revoked", "expired", "wrong", "open", "left", "differs"}
	good = []string{"allowed", "valid", "done", "ok", "yes"}
)

// paint colours a cell.
func (p *printer) paint(cell string, heading, coloured bool) string {
	word, _, _ := strings.Cut(cell, " ")
	switch {
	case !p.colour:
		return cell
	case heading:
		return "\x1b[1m" + cell + "\x1b[0m"
	case coloured && slices.Contains(bad, word):
		return "\x1b[31m" + cell + "\x1b[0m"
	case coloured && slices.Contains(good, word):
		return "\x1b[32m" + cell + "\x1b[0m"
	}
	return cell
}

// facts prints one object, a line for each field that has a value.
func (p *printer) facts(o object, columns []column) error {
	return p.value(o, func() error {
		width := 0
		for _, c := range columns {
			width = max(width, len(c.heading))
		}
		for i := range columns {
			if cell := columns[i].cell(o); cell != "" {
				p.line("%-*s  %s", width, strings.ToLower(columns[i].heading), cell)
			}
		}
		return nil
	})
}

// cell is the text of a column, which a terminal may read.
func (c *column) cell(row object) string {
	value := any(row)
	if c.field != "" {
		value = at(row, c.field)
	}
	if c.format != nil {
		return plain(c.format(value))
	}
	return plain(words(value))
}
