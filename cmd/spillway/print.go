package main

import (
	"bytes"
	"cmp"
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
	heading, field string // of the JSON; without a field it is about the whole object
	format         func(value any) string
	wide           bool // shown with -o wide alone
	state, bad     bool // coloured by its first word; red
}

// columns reads columns, with | between them: HEADING field, or HEADING field:format, and wide, state or bad behind it.
func columns(spec string) (all []column) {
	for one := range strings.SplitSeq(spec, "|") {
		texts := strings.Fields(one)
		at := slices.IndexFunc(texts, func(word string) bool { return word != strings.ToUpper(word) })
		if at < 1 {
			panic("a column must be HEADING field:format: " + one)
		}
		field, format, formatted := strings.Cut(texts[at], ":")
		c := column{
			heading: strings.Join(texts[:at], " "), field: field, format: words,
			wide: slices.Contains(texts[at+1:], "wide"), state: slices.Contains(texts[at+1:], "state"),
			bad: slices.Contains(texts[at+1:], "bad"),
		}
		if formatted {
			c.format = formats[format]
		}
		all = append(all, c)
	}
	return all
}

// newPrinter returns the printer for the flag --output.
func newPrinter(cmd *cobra.Command) (*printer, error) {
	format, err := cmd.Flags().GetString("output")
	if err != nil {
		return nil, err
	}
	if known := formatsOf(cmd); !slices.Contains(known, format) {
		return nil, fmt.Errorf("%s prints %s, not %q", cmd.Name(), strings.Join(known, ", "), format)
	}
	p := &printer{out: cleaned{cmd.OutOrStdout(), format == "yaml"}, raw: cmd.OutOrStdout(), format: format}
	p.colour = coloured(p.raw)
	if isTerminal(p.raw) {
		p.width, _, err = term.GetSize(int(p.raw.(*os.File).Fd()))
		if err != nil {
			p.width = 0
		}
	}
	return p, nil
}

// printing makes the function of a command that prints without asking a server.
func printing(run func(cmd *cobra.Command, out *printer, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		out, err := newPrinter(cmd)
		if err != nil {
			return err
		}
		return run(cmd, out, args)
	}
}

// formatsOf are the formats of a command.
func formatsOf(cmd *cobra.Command) []string {
	all := []string{"table", "wide", "json", "yaml"}
	switch cmd.Name() {
	case "lint":
		return append(all, "sarif")
	case "replay":
		return append(all, "html")
	}
	return all
}

func completeOutput(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return formatsOf(cmd), cobra.ShellCompDirectiveNoFileComp
}

// data reports whether programs read the output.
func (p *printer) data() bool { return p.format != "table" && p.format != "wide" }

// value prints a value as JSON or YAML, else for people by show.
func (p *printer) value(value any, show func()) error {
	if !p.data() {
		show()
		return nil
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	if err == nil && p.format == "yaml" {
		err = toYAML(&text)
	}
	if err == nil {
		_, err = p.out.Write(text.Bytes())
	}
	return err
}

// toYAML writes a JSON document anew as YAML, in its order.
func toYAML(text *bytes.Buffer) error {
	var safe bytes.Buffer
	_, _ = cleaned{&safe, true}.Write(text.Bytes()) // YAML refuses control characters
	var node yaml.Node
	err := yaml.Unmarshal(safe.Bytes(), &node)
	if err != nil {
		return err
	}
	inBlocks(&node)
	text.Reset()
	encoder := yaml.NewEncoder(text)
	encoder.SetIndent(2)
	return errors.Join(encoder.Encode(&node), encoder.Close())
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

// line prints one line.
func (p *printer) line(format string, args ...any) { fmt.Fprintf(p.out, format+"\n", args...) }

// list prints rows under their field.
func (p *printer) list(field string, rows []object, columns []column) error {
	return p.value(object{field: append([]object{}, rows...)}, func() { p.table(rows, columns) })
}

// table prints rows in columns. Where the terminal is narrow, a column is cut and those behind it are left out.
func (p *printer) table(rows []object, all []column) {
	all = slices.DeleteFunc(slices.Clone(all), func(c column) bool { return c.wide && p.format != "wide" })
	lines := make([][]string, len(rows)+1)
	for i := range all {
		lines[0] = append(lines[0], all[i].heading)
		for at, row := range rows {
			lines[at+1] = append(lines[at+1], cmp.Or(all[i].cell(row), "-"))
		}
	}
	widths := p.fit(lines)
	var text strings.Builder
	for at, cells := range lines {
		for i, width := range widths {
			cell := cut(cells[i], width)
			pad := width - utf8.RuneCountInString(cell) + 2
			if i == len(widths)-1 {
				pad = 0
			}
			text.WriteString(p.paint(cell, at == 0, &all[i]) + strings.Repeat(" ", pad))
		}
		text.WriteByte('\n')
	}
	_, _ = io.WriteString(p.raw, text.String()) // each cell is plain
}

// Where not all columns fit, one that is shown cut has at least so much room, and one before the last at most so much.
const leastCut, mostCut = 12, 32

// fit is how wide the columns are that there is room for.
func (p *printer) fit(lines [][]string) (widths []int) {
	total := -2
	for i := range lines[0] {
		width := 0
		for _, cells := range lines {
			width = max(width, utf8.RuneCountInString(cells[i]))
		}
		widths, total = append(widths, width), total+width+2
	}
	if p.width == 0 || p.format == "wide" || total <= p.width {
		return widths
	}
	return narrowed(widths, p.width)
}

// narrowed are the widths of the columns that are shown where not all fit.
func narrowed(widths []int, room int) []int {
	for i := range widths {
		if i < len(widths)-1 {
			widths[i] = min(widths[i], mostCut)
		}
		if i > 0 && widths[i] > room {
			widths[i] = room
			if room < leastCut {
				return widths[:i]
			}
			return widths[:i+1]
		}
		room -= widths[i] + 2
	}
	return widths
}

// cut is a text of at most so many characters.
func cut(text string, most int) string {
	if all := []rune(text); len(all) > most {
		return string(all[:most-1]) + "…"
	}
	return text
}

// paint colours a cell.
func (p *printer) paint(cell string, heading bool, of *column) string {
	switch {
	case heading:
		return p.style(bold, cell)
	case of.bad && cell != "-":
		return p.style(red, cell)
	case of.state:
		return p.stated(cell)
	}
	return cell
}

// facts prints one object, a line for each column that has a value.
func (p *printer) facts(o object, all []column) {
	width := 0
	for _, c := range all {
		width = max(width, len(c.heading))
	}
	for i := range all {
		if cell := all[i].cell(o); cell != "" {
			p.line("%-*s  %s", width, strings.ToLower(all[i].heading), cell)
		}
	}
}

// cell is the text of a column, which a terminal may read.
func (c *column) cell(row object) string {
	if c.field == "" {
		return plain(c.format(row))
	}
	return plain(c.format(at(row, c.field)))
}
