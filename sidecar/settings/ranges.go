package settings

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// checkRanges adds a problem for each value that the tag `in` of its field does not allow: "1ms..1m", "0.." or, of words in
// any case, "text|json". What an earlier problem is about, and a group that is not in use, are passed over.
func (c *Config) checkRanges(p *problems, reported map[string]bool) {
	unused := map[string]bool{"PerSecond": !c.Store.PerSecond, "XDS": !c.Rules.FromXDS()}
	whole := reflect.ValueOf(c).Elem()
	for i := range whole.NumField() {
		group := whole.Type().Field(i)
		if group.Type.Kind() == reflect.Struct && !unused[group.Name] {
			p.outside(whole.Field(i), group.Tag.Get("envPrefix"), reported)
		}
	}
}

// outside adds a problem for each field of a group that is outside of its range.
func (p *problems) outside(group reflect.Value, prefix string, reported map[string]bool) {
	for i := range group.NumField() {
		field := group.Type().Field(i)
		name, in := prefix+field.Tag.Get("env"), field.Tag.Get("in")
		if in != "" && !reported[name] {
			value := group.Field(i)
			p.unless(within(in, value), name, value.Interface(), rangeText(in, value))
		}
	}
}

// within reports whether a tag allows a value.
func within(in string, v reflect.Value) bool {
	if v.Kind() == reflect.String {
		return one(v.String(), strings.Split(in, "|")...)
	}
	least, most, _ := strings.Cut(in, "..")
	return number(v) >= end(least, v) && (most == "" || number(v) <= end(most, v))
}

// number is a value as a number; all bounds are far below what it holds exactly.
func number(v reflect.Value) float64 {
	if v.CanFloat() {
		return v.Float()
	}
	return float64(v.Int())
}

// end is an end of a range. It panics where a tag is wrong, which every test of settings finds out.
func end(text string, v reflect.Value) float64 {
	if v.Type() == reflect.TypeFor[time.Duration]() {
		d, err := time.ParseDuration(text)
		if err != nil {
			panic(err)
		}
		return float64(d)
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// rangeText is what a tag allows, in words.
func rangeText(in string, v reflect.Value) string {
	if v.Kind() == reflect.String {
		words := strings.Split(strings.TrimPrefix(in, "|"), "|")
		if len(words) == 2 {
			return words[0] + " or " + words[1]
		}
		return "one of " + strings.Join(words, ", ")
	}
	least, most, _ := strings.Cut(in, "..")
	text := "a number from " + least
	if v.Type() == reflect.TypeFor[time.Duration]() {
		text = "a duration from " + least
	}
	if most != "" {
		text = fmt.Sprintf("%s to %s", text, most)
	}
	return text
}
