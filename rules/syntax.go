package rules

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const (
	maxFileSize = 4 << 20   // bytes of one rule file
	maxLocate   = 512 << 10 // bytes that may be parsed again to find the line of a syntax error
)

// syntaxError is text that cannot be read as one YAML document.
type syntaxError struct {
	line, column int
	text         string
}

// parse reads the text as exactly one YAML document and returns its root, or what is wrong with it.
func parse(text []byte) (*yaml.Node, *syntaxError) {
	if len(text) > maxFileSize {
		return nil, &syntaxError{1, 1, fmt.Sprintf("the file has more than %d MiB; split it into several domains",
			maxFileSize>>20)}
	}
	if bad := badByte(text); bad != nil {
		return nil, bad
	}
	first, second, err := documents(text)
	if err != nil {
		return nil, explain(text, err)
	}
	if first == nil || len(first.Content) == 0 || first.Content[0].ShortTag() == "!!null" {
		return nil, &syntaxError{1, 1, "the file is empty; it needs at least `domain: NAME`"}
	}
	if second != nil {
		return nil, &syntaxError{second.Line, max(second.Column, 1), "a second document starts here; a file holds " +
			"one domain, so move it to a file of its own"}
	}
	return first.Content[0], nil
}

// documents returns the first two YAML documents of the text; nil if it holds none. A panic of the YAML library is
// taken for a syntax error: what a user saves to a file must not end the program.
func documents(text []byte) (first, second *yaml.Node, err error) {
	var docs [2]*yaml.Node
	fault := Guard(func() {
		reader := yaml.NewDecoder(bytes.NewReader(text))
		for i := 0; i < len(docs) && err == nil; i++ {
			var doc yaml.Node
			if err = reader.Decode(&doc); err == nil {
				docs[i] = &doc
			}
		}
	})
	if fault != nil {
		err = fmt.Errorf("yaml: cannot be read: %v", fault)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	return docs[0], docs[1], nil
}

// Guard calls what reads rules, and returns what it panicked with, or nil.
func Guard(read func()) (fault any) {
	defer func() { fault = recover() }()
	read()
	return nil
}

// badByte finds bytes that no YAML file may hold, because the YAML library does not return where they are.
func badByte(text []byte) *syntaxError {
	rest := text
	for len(rest) > 0 {
		r, size := utf8.DecodeRune(rest)
		at := len(text) - len(rest)
		if r == utf8.RuneError && size == 1 {
			return place(text, at, "this byte is not UTF-8; save the file as UTF-8")
		}
		if unicode.IsControl(r) && !strings.ContainsRune("\t\n\r\u0085", r) {
			return place(text, at, fmt.Sprintf("a control character (%#02x) is not allowed; remove it", r))
		}
		rest = rest[size:]
	}
	return nil
}

// place turns an offset into a line and a column.
func place(text []byte, offset int, what string) *syntaxError {
	line := 1 + bytes.Count(text[:offset], []byte("\n"))
	column := 1 + utf8.RuneCount(text[bytes.LastIndexByte(text[:offset], '\n')+1:offset])
	return &syntaxError{line, column, what}
}

var yamlLine = regexp.MustCompile(`^line (\d+): `)

// advice puts an error of the YAML library into plain words.
var advice = []struct{ says, means string }{
	{"mapping values are not allowed", "a colon is not expected here; check the indentation, or quote the value"},
	{"did not find expected key", "the line does not fit the lines above; check its indentation"},
	{"did not find expected '-' indicator", "the line does not fit the list above; check its indentation"},
	{"block sequence entries are not allowed", "a list item is not expected here; check the indentation"},
	{"could not find expected ':'", "a key needs a colon and a value"},
	{"found character that cannot start any token", "this cannot start a value; quote it, and indent with blanks, " +
		"never with tabs"},
	{"found a tab character", "a tab stands where blanks are needed; indent with blanks"},
	{"unknown anchor", "an alias stands here whose anchor is not above it; quote text that begins with *"},
	{"did not find expected alphabetic or numeric character",
		"this is neither an alias nor an anchor; quote text that " +
			"begins with * or &"},
	{"found unexpected end of stream", "a quote is opened and never closed"},
	{"did not find expected ',' or ']'", "a list in brackets is opened and not closed, or a comma is missing"},
	{"did not find expected ',' or '}'", "a map in braces is opened and not closed, or a comma is missing"},
}

// explain turns the library's error into a place and plain words.
func explain(text []byte, err error) *syntaxError {
	says := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if m := yamlLine.FindStringSubmatch(says); m != nil {
		says = says[len(m[0]):]
		line, _ = strconv.Atoi(m[1])
	}
	line = locate(text, line)
	for _, a := range advice {
		if strings.HasPrefix(says, a.says) {
			return &syntaxError{line, 1, a.means}
		}
	}
	return &syntaxError{line, 1, "this is not YAML: " + says}
}

// locate finds the line of a syntax error better than the library, which often names the parent's: it is the one after
// the longest run of whole lines that can be read. Where that would take too long, the library's line stands.
func locate(text []byte, line int) int {
	l := &locator{text: text, ends: lineEnds(text), budget: maxLocate}
	good := 0
	if len(l.ends) > 0 && !l.broken(len(l.ends)-1) {
		good = len(l.ends) - 1 // as in a file that was cut
	}
	for {
		good += sort.Search(len(l.ends)-good, func(more int) bool { return l.broken(good + more + 1) })
		closed := l.closed(good + 2)
		if l.budget < 0 {
			return line
		}
		if closed == 0 {
			return max(1, min(good+1, len(l.ends)))
		}
		good = closed // what was broken was only not closed yet
	}
}

// locator reads the beginning of a text again and again.
type locator struct {
	text   []byte
	ends   []int // of the lines
	budget int   // bytes that may still be read
}

// broken reports whether the first lines cannot be read.
func (l *locator) broken(lines int) bool {
	if lines == 0 {
		return false
	}
	size := l.ends[lines-1]
	l.budget -= size
	if l.budget < 0 {
		return true
	}
	_, _, err := documents(l.text[:size])
	return err != nil
}

// closed finds the number of lines, from the given one on, by which a list, a map or a text has been closed; 0: none.
func (l *locator) closed(from int) int {
	const longest = 20 // lines
	for lines := from; lines < from+longest && lines <= len(l.ends); lines++ {
		if !l.broken(lines) {
			return lines
		}
	}
	return 0
}

// lineEnds returns the offset behind each line.
func lineEnds(text []byte) []int {
	var ends []int
	for at := 0; at < len(text); {
		next := bytes.IndexByte(text[at:], '\n')
		if next < 0 {
			next = len(text) - at - 1
		}
		at += next + 1
		ends = append(ends, at)
	}
	return ends
}
