package httpapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// checker holds a document against a schema.
type checker struct {
	all   *schemas
	wrong []Field
}

// mostWrong is how many parts of a request one problem names.
const mostWrong = 20

func (c *checker) fail(name, format string, args ...any) {
	if len(c.wrong) < mostWrong {
		c.wrong = append(c.wrong, Field{name, fmt.Sprintf(format, args...)})
	}
}

// check holds a value, as encoding/json reads one with UseNumber, against a schema, and returns it with whole numbers
// written as Go reads them: JSON may write 100 as 1e2.
func (c *checker) check(name string, value any, s *Schema) any {
	if s.Ref != "" {
		s = c.all.byName[s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]]
	}
	if value == nil {
		c.null(name, s)
		return nil
	}
	if len(s.AnyOf) > 0 {
		return c.any(name, value, s)
	}
	switch v := value.(type) {
	case map[string]any:
		c.object(name, v, s)
	case []any:
		c.list(name, v, s)
	case string:
		c.text(name, v, s)
		if s.Format == "date-time" {
			return strings.ToUpper(v) // RFC 3339 allows 2026-11-30t12:00:00z, and Go does not
		}
	case json.Number:
		return c.number(name, v, s)
	case bool:
		c.kind(name, s, "boolean")
	}
	return value
}

// null refuses null where the schema asks for something.
func (c *checker) null(name string, s *Schema) {
	if s.Type != "" || len(s.AnyOf) > 0 {
		c.fail(name, "is null: leave it out")
	}
}

// kind reports whether a value of a kind is what the schema asks for.
func (c *checker) kind(name string, s *Schema, kind string) bool {
	if s.Type == "" || s.Type == kind {
		return true
	}
	c.fail(name, "must be %s", kinds[s.Type])
	return false
}

// any holds a value against schemas of which one has to hold.
func (c *checker) any(name string, value any, s *Schema) any {
	for _, one := range s.AnyOf {
		try := &checker{all: c.all}
		fit := try.check(name, value, one)
		if len(try.wrong) == 0 {
			return fit
		}
	}
	c.fail(name, "must be %s", strings.ToLower(strings.TrimSuffix(s.Description, ".")))
	return value
}

func (c *checker) object(name string, fields map[string]any, s *Schema) {
	if !c.kind(name, s, "object") {
		return
	}
	for _, required := range s.Required {
		if _, given := fields[required]; !given {
			c.fail(name+"."+required, "is missing")
		}
	}
	for field, value := range fields {
		of, known := s.Properties[field], true
		if of == nil {
			of, known = s.Additional.(*Schema)
		}
		switch {
		case known:
		case s.Additional == nil:
			of = &Schema{}
		default:
			c.fail(name+"."+field, "is unknown")
			continue
		}
		fields[field] = c.check(name+"."+field, value, of)
	}
	c.oneOf(name, fields, s)
}

// oneOf refuses an object that has none or several of the alternatives of a schema.
func (c *checker) oneOf(name string, fields map[string]any, s *Schema) {
	var names []string
	met := 0
	for _, one := range s.OneOf {
		names = append(names, strings.Join(one.Required, " with "))
		if !slices.ContainsFunc(one.Required, func(field string) bool { _, given := fields[field]; return !given }) {
			met++
		}
	}
	if len(s.OneOf) > 0 && met != 1 {
		c.fail(name, "must name one of %s", strings.Join(names, ", "))
	}
}

func (c *checker) list(name string, items []any, s *Schema) {
	if !c.kind(name, s, "array") {
		return
	}
	if !inSpan(len(items), s.MinItems, s.MaxItems) {
		c.fail(name, "must have %s items", span(s.MinItems, s.MaxItems))
		return
	}
	of := s.Items
	if of == nil {
		of = &Schema{}
	}
	for i := range items {
		items[i] = c.check(fmt.Sprintf("%s[%d]", name, i), items[i], of)
	}
}

// patterns are the compiled patterns of schemas.
var patterns sync.Map

func matches(pattern, text string) bool {
	compiled, known := patterns.Load(pattern)
	if !known {
		compiled, _ = patterns.LoadOrStore(pattern, regexp.MustCompile(pattern))
	}
	return compiled.(*regexp.Regexp).MatchString(text)
}

func (c *checker) text(name, text string, s *Schema) {
	if !c.kind(name, s, "string") {
		return
	}
	n := utf8.RuneCountInString(text)
	switch {
	case n == 0 && s.MinLength > 0:
		c.fail(name, "is empty: leave it out, or fill it in")
	case !inSpan(n, s.MinLength, s.MaxLength):
		c.fail(name, "must have %s characters", span(s.MinLength, s.MaxLength))
	case len(s.Enum) > 0 && !slices.Contains(s.Enum, text):
		c.fail(name, "%q must be one of %s", text, strings.Join(s.Enum, ", "))
	case !utf8.ValidString(text):
		c.fail(name, "must be UTF-8")
	case !matches(s.Pattern, text):
		c.fail(name, "%q must %s", text, s.pattern())
	case !formatted(text, s.Format):
		c.fail(name, "%q must be %s", text, formats[s.Format])
	}
}

// pattern is the pattern in words, where it has any.
func (s *Schema) pattern() string {
	about := strings.TrimSuffix(cmp.Or(s.Description, s.about), ".")
	switch {
	case s.Pattern == noNUL:
		return "not have the character NUL"
	case s.Pattern == "^[^/]":
		return "not begin with /: that looks like a path"
	case about != "":
		return "be " + strings.ToLower(about[:1]) + about[1:]
	}
	return "match " + s.Pattern
}

// noNUL is the pattern of texts that a database can keep.
const noNUL = `^[^\x00]*$`

// formats are formats in words, and kinds those of types.
var (
	formats = map[string]string{
		"date-time": "a time such as 2026-11-30T12:00:00Z", "date": "a day such as 2026-11-30",
		"ipv4": "an address such as 192.0.2.7", "ipv6": "an address such as 2001:db8::7",
	}
	kinds = map[string]string{
		"integer": "a whole number", "number": "a number", "boolean": "true or false", "string": "a text",
		"array": "a list", "object": "an object",
	}
)

// formatted reports whether a text has a format.
func formatted(text, format string) bool {
	switch format {
	case "date-time":
		_, err := time.Parse(time.RFC3339, strings.ToUpper(text))
		return err == nil
	case "date":
		_, err := time.Parse(time.DateOnly, text)
		return err == nil
	case "ipv4", "ipv6":
		addr, err := netip.ParseAddr(text)
		return err == nil && addr.Is4() == (format == "ipv4") && addr.Zone() == ""
	}
	return true
}

// number checks a number, and returns a whole one without an exponent.
func (c *checker) number(name string, text json.Number, s *Schema) any {
	if s.Type != "integer" {
		c.kind(name, s, "number")
		return text
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		number, wrong := text.Float64()
		if wrong != nil || number != math.Trunc(number) || math.Abs(number) > 1<<53 {
			c.fail(name, "%s must be a whole number", text)
			return text
		}
		n = int64(number)
	}
	low, high := int64(math.MinInt64), int64(math.MaxInt64)
	if s.Minimum != nil {
		low = *s.Minimum
	}
	if s.Maximum != nil {
		high = *s.Maximum
	}
	if n < low || n > high {
		c.fail(name, "%d must be a number from %s", n, within(low, high))
	}
	return json.Number(strconv.FormatInt(n, 10))
}

// inSpan reports whether a length is in a range; without an upper end where high is 0.
func inSpan(n, low, high int) bool { return n >= low && (high == 0 || n <= high) }

func span(low, high int) string { return within(int64(low), int64(high)) }

// within is a range in words.
func within(low, high int64) string {
	if high == 0 || high == math.MaxInt64 {
		return fmt.Sprintf("%d or more", low)
	}
	return fmt.Sprintf("%d to %d", low, high)
}
