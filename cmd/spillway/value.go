package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// object is a JSON object of an answer. Commands know none of the servers' types.
type object = map[string]any

// at is the value of a field. Dots lead into objects.
func at(o object, path string) any {
	field, rest, more := strings.Cut(path, ".")
	if !more {
		return o[field]
	}
	return at(inner(o, field), rest)
}

// inner is the object of a field, or nil.
func inner(o object, path string) object {
	found, _ := at(o, path).(object)
	return found
}

// text is the value of a field as a text, empty where it is missing.
func text(o object, path string) string { return words(at(o, path)) }

// isTrue reports whether a field is true.
func isTrue(o object, path string) bool { return at(o, path) == true }

// whole is the value of a field that is a whole number.
func whole(o object, path string) int64 {
	n, _ := strconv.ParseInt(text(o, path), 10, 64)
	return n
}

// objects are the objects of a list.
func objects(o object, path string) []object {
	list, _ := at(o, path).([]any)
	var all []object
	for _, one := range list {
		found, _ := one.(object)
		all = append(all, found)
	}
	return all
}

// words is a value for people.
func words(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case bool:
		return map[bool]string{true: "yes"}[v]
	case json.Number:
		return v.String()
	case []any:
		texts := make([]string, len(v))
		for i := range v {
			texts[i] = words(v[i])
		}
		return strings.Join(texts, ", ")
	case object:
		text, _ := json.Marshal(v) // it came as JSON
		return string(text)
	}
	return fmt.Sprint(value)
}

// when is a time to the second.
func when(value any) string {
	at, err := time.Parse(time.RFC3339Nano, words(value))
	switch {
	case err != nil:
		return words(value)
	case at.IsZero():
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}

// span is a duration in seconds, in the units that people read.
func span(value any) string {
	seconds, _ := strconv.ParseFloat(words(value), 64)
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

// limit is a limit in the words of a rule file.
func limit(value any) string {
	l, _ := value.(object)
	if l == nil || isTrue(l, "unlimited") {
		return map[bool]string{true: "unlimited"}[l != nil]
	}
	per := text(l, "per")
	if d, err := time.ParseDuration(per); err == nil {
		per = shortSpan(d)
	}
	all := strings.TrimSuffix(text(l, "count")+"/"+per+" "+text(l, "algorithm"), " ")
	if burst := text(l, "burst"); burst != "" && burst != text(l, "count") {
		all += " burst " + burst
	}
	return all
}

// limits are limits, with commas between them.
func limits(value any) string {
	list, _ := value.([]any)
	all := make([]string, len(list))
	for i := range list {
		all[i] = limit(list[i])
	}
	return strings.Join(all, ", ")
}

// blocked is until when a block holds, and why: of an object with until and reason.
func blocked(b object) string {
	all := "for ever"
	if until := when(b["until"]); until != "" {
		all = "until " + until
	}
	return all + quoted(text(b, "reason"))
}

// quoted is a text in quotes behind a blank, empty where it is empty.
func quoted(text string) string {
	if text == "" {
		return ""
	}
	return fmt.Sprintf(" %q", text)
}

// formats are the functions that columns name: of the value of a field, or of the whole object.
var formats = map[string]func(value any) string{
	"when": when, "span": span, "limit": limit, "limits": limits, "coolDown": coolDown, "orNone": orNone, "orNo": orNo,
	"blocked": of(blocked), "userBlock": of(userBlock), "keyState": of(keyState), "canariesOf": of(canariesOf),
	"refusedShare": of(refusedShare), "left": of(left),
	"untilFull": of(untilFull), "ruleTitle": of(ruleTitle), "outage": func(value any) string {
		return outage(words(value))
	},
	"eventClient":  of(eventClient),
	"eventRequest": of(eventRequest), "decisionRule": of(decisionRule), "decisionLimit": of(decisionLimit),
	"decisionLeft": of(decisionLeft), "retryAfter": of(retryAfter), "owners": of(owners),
	"sidecarName": of(sidecarName), "degradedNow": of(degradedNow), "ruleName": of(ruleName),
	"ruleLimit":    of(ruleLimit),
	"requestWords": of(requestWords), "changeWords": of(changeWords), "chargeLeft": of(chargeLeft),
	"chargeCost": of(chargeCost), "refuses": of(refuses), "named": of(named), "beatenBy": of(beatenBy),
}

// of makes the function of a column from one of an object.
func of(format func(o object) string) func(value any) string {
	return func(value any) string {
		o, _ := value.(object)
		return format(o)
	}
}

// counted is a number of things.
func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// plain is a text without characters that move the cursor or change colours: such a text is quoted.
func plain(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// plainLines is plain for a text of several lines.
func plainLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = plain(lines[i])
	}
	return strings.Join(lines, "\n")
}

// cleaned is a writer of lines from which a terminal takes no orders, also where a text was not made plain.
type cleaned struct {
	to   io.Writer
	yaml bool // its escapes, where they are not those of JSON
}

// Write escapes what is not printable, but ends of lines and tabs, as JSON and YAML do.
func (c cleaned) Write(b []byte) (int, error) {
	var line []byte
	for rest := b; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == '\n', r == '\t', unicode.IsPrint(r) && (r != utf8.RuneError || size > 1):
			line = append(line, rest[:size]...)
		case r == utf8.RuneError && size == 1:
			line = fmt.Appendf(line, `\x%02x`, rest[0])
		case r > 0xffff && c.yaml:
			line = fmt.Appendf(line, `\U%08x`, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			line = fmt.Appendf(line, `\u%04x\u%04x`, high, low)
		default:
			line = fmt.Appendf(line, `\u%04x`, r)
		}
		rest = rest[size:]
	}
	_, err := c.to.Write(line)
	return len(b), err
}
