package replay

import (
	"encoding/json"
	"errors"
	"fmt"
)

// readJSON reads a line of JSON into the record: strings, numbers and literals under their names, those of objects within the object
// under both names with a dot between. It accepts what encoding/json accepts, and makes no copy of what has no escapes: a decoder by
// reflection takes most of the time of a replay.
func readJSON(l *layout, r *record, line string) error {
	s := scanner{text: line, layout: l, record: r}
	err := s.object("", 0)
	if err == nil {
		s.blanks()
		if s.at < len(s.text) {
			err = errors.New("there is more after the object")
		}
	}
	if err != nil {
		return fmt.Errorf("not JSON at byte %d: %w", s.at+1, err)
	}
	return nil
}

// maxDepth is how many objects and arrays may be within each other.
const maxDepth = 64

var (
	errCut   = errors.New("the line is cut off")
	errValue = errors.New("a value is wanted")
	errDeep  = errors.New("too many objects within each other")
)

type scanner struct {
	text   string
	at     int
	layout *layout
	record *record
}

func (s *scanner) blanks() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return
		}
	}
}

// next skips blanks and returns the byte that follows, 0 at the end.
func (s *scanner) next() byte {
	s.blanks()
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

// take skips a byte that must be there.
func (s *scanner) take(c byte) error {
	switch got := s.next(); {
	case got == c:
		s.at++
		return nil
	case s.at == len(s.text):
		return errCut
	default:
		return fmt.Errorf("%q is wanted, not %q", c, got)
	}
}

// object reads an object whose fields have this in front of their names.
func (s *scanner) object(prefix string, depth int) error {
	if depth > maxDepth {
		return errDeep
	}
	err := s.take('{')
	if err != nil {
		return err
	}
	if s.next() == '}' {
		s.at++
		return nil
	}
	for {
		err = s.member(prefix, depth)
		if err != nil {
			return err
		}
		if s.next() != ',' {
			return s.take('}')
		}
		s.at++
	}
}

// member reads one name and its value.
func (s *scanner) member(prefix string, depth int) error {
	s.blanks()
	name, err := s.string()
	if err != nil {
		return err
	}
	err = s.take(':')
	if err != nil {
		return err
	}
	if prefix != "" {
		name = prefix + name
	}
	switch s.next() {
	case '{':
		return s.object(name+".", depth+1)
	case '[':
		return s.array(depth + 1)
	}
	null := s.next() == 'n'
	value, err := s.scalar()
	if err == nil && !null {
		s.record.set(s.layout, name, value)
	}
	return err
}

// array skips an array.
func (s *scanner) array(depth int) error {
	if depth > maxDepth {
		return errDeep
	}
	s.at++
	if s.next() == ']' {
		s.at++
		return nil
	}
	for {
		var err error
		switch s.next() {
		case '{':
			err = s.object("[]", depth+1) // no field begins so
		case '[':
			err = s.array(depth + 1)
		default:
			_, err = s.scalar()
		}
		if err != nil {
			return err
		}
		if s.next() != ',' {
			return s.take(']')
		}
		s.at++
	}
}

// scalar reads a string, a number or a literal, the latter two as they are written.
func (s *scanner) scalar() (string, error) {
	switch s.next() {
	case 0:
		return "", errCut
	case '"':
		return s.string()
	}
	from := s.at
	for s.at < len(s.text) && !ends[s.text[s.at]] {
		s.at++
	}
	text := s.text[from:s.at]
	switch {
	case text == "true", text == "false", text == "null", isNumber(text):
		return text, nil
	case s.at == len(s.text):
		return "", errCut
	}
	return "", errValue
}

// ends are the bytes that end a number or a literal.
var ends = [256]bool{',': true, '}': true, ']': true, ' ': true, '\t': true, '\r': true, '\n': true, ':': true, '{': true, '[': true, '"': true}

// isNumber reports whether a text is a number of JSON.
func isNumber(text string) bool {
	if text == "" || text[0] != '-' && (text[0] < '0' || text[0] > '9') {
		return false
	}
	for i := 0; i < len(text); i++ {
		if text[i] < '0' || text[i] > '9' {
			return json.Valid([]byte(text))
		}
	}
	return text[0] != '0' || len(text) == 1
}

// string reads a string.
func (s *scanner) string() (string, error) {
	if s.at == len(s.text) {
		return "", errCut
	}
	if s.text[s.at] != '"' {
		return "", errors.New("a name in quotes is wanted")
	}
	from, escaped := s.at, false
	for s.at++; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			if !escaped {
				return s.text[from+1 : s.at-1], nil
			}
			text := ""
			err := json.Unmarshal([]byte(s.text[from:s.at]), &text)
			return text, err
		case c == '\\':
			escaped = true
			s.at++
		case c < ' ':
			return "", errors.New("a control byte stands in a text")
		}
	}
	s.at = len(s.text)
	return "", errCut
}
