package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// The styles of a terminal.
const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	bold   = "\x1b[1m"
	usual  = "\x1b[0m"
)

// coloured reports whether a stream gets colours: a terminal that knows them, and where CLICOLOR_FORCE is set any.
// NO_COLOR turns them off.
func coloured(stream io.Writer) bool {
	if os.Getenv("NO_COLOR") != "" {
		return false
	}
	if force := os.Getenv("CLICOLOR_FORCE"); force != "" && force != "0" {
		return true
	}
	return isTerminal(stream) && os.Getenv("TERM") != "dumb"
}

// colours are those of the words that begin cells of a state, verdicts and findings.
var colours = map[string]string{
	"refused": red, "blocked": red, "malformed": red, "revoked": red, "expired": red, "left": red, "failed": red, "again": red, "cool-down,": red,
	severityError: red, severityWarning: yellow, "shadowed": yellow, "unknown_domain": yellow,
	"allowed": green, "valid": green, "done": green, "yes": green,
}

// style is a text in a style, on a terminal that knows colours. The text is not made plain.
func (p *printer) style(style, text string) string {
	if !p.colour || style == "" || text == "" {
		return text
	}
	return style + text + usual
}

// stated is a text, cleaned, whose first word has the colour of the state that it names.
func (p *printer) stated(text string) string {
	word, rest, _ := strings.Cut(cleanText(text), " ")
	if rest != "" {
		rest = " " + rest
	}
	return p.style(colours[strings.TrimSuffix(word, ":")], word) + rest
}

// cleanText is a text as cleaned writes it.
func cleanText(text string) string {
	var b strings.Builder
	_, _ = cleaned{to: &b}.Write([]byte(text))
	return b.String()
}

// painted prints a line of texts that are clean already.
func (p *printer) painted(texts ...string) { fmt.Fprintln(p.raw, strings.Join(texts, "")) }
