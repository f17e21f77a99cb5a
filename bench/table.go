package main

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// table is rows of text. The columns after the first few are numbers, aligned to the right.
type table struct {
	head []string
	left int // columns aligned to the left
	rows [][]string
}

// terminal is the table with columns as wide as their widest cell.
func (t table) terminal() string {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var out strings.Builder
	for _, row := range append([][]string{t.head}, t.rows...) {
		var line strings.Builder
		for i, cell := range row {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i < t.left {
				line.WriteString(cell + space + "  ")
			} else {
				line.WriteString(space + cell + "  ")
			}
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return out.String()
}

// markdown is the table for RESULTS.md.
func (t table) markdown() string {
	var out strings.Builder
	rule := make([]string, len(t.head))
	for i := range rule {
		rule[i] = "---:"
		if i < t.left {
			rule[i] = "---"
		}
	}
	for _, row := range append([][]string{t.head, rule}, t.rows...) {
		out.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	return out.String()
}

// number writes a figure with as many digits as it is worth, and a dash for one that is not known.
func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case v >= 1000:
		return thousands(int64(math.Round(v)))
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// fine writes a figure with three digits behind the point, for goals that are small.
func fine(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return fmt.Sprintf("%.3f", v)
}

// thousands writes 1234567 as 1,234,567.
func thousands(n int64) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// red is text that a terminal shows in red.
func red(text string) string { return "\x1b[31m" + text + "\x1b[0m" }
