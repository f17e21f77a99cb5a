package settings

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// checkRanges adds a problem for each value that the tag `in` of its field does not allow: "1ms..1m", "0.." or, of
// words in any case, "text|json". A group that is not in use is passed over.
func (c *Config) checkRanges(p *problems) {
	unused := map[string]bool{"PerSecond": !c.Store.PerSecond, "XDS": !c.Rules.FromXDS()}
	whole := reflect.ValueOf(c).Elem()
	for i := range whole.NumField() {
		group := whole.Type().Field(i)
		if group.Type.Kind() == reflect.Struct && !unused[group.Name] {
			p.outside(whole.Field(i), group.Tag.Get("envPrefix"))
		}
	}
}

// outside adds a problem for each field of a group that is outside of its range.
func (p *problems) outside(group reflect.Value, prefix string) {
	for i := range group.NumField() {
		field := group.Type().Field(i)
		name, in := prefix+field.Tag.Get("env"), field.Tag.Get("in")
		if in != "" {
			value := group.Field(i)
			p.unless(within(in, value), name, value.Interface(), rangeText(in, value))
		}
	}
}

// within reports whether a tag allows a value. It panics where a tag is wrong, which every test of settings finds out.
func within(in string, v reflect.Value) bool {
	if v.Kind() == reflect.String {
		return one(v.String(), strings.Split(in, "|")...)
	}
	least, most, _ := strings.Cut(in, "..")
	return number(fmt.Sprint(v.Interface())) >= number(least) &&
		(most == "" || number(fmt.Sprint(v.Interface())) <= number(most))
}

// number is a number, or a duration in nanoseconds; all bounds are far below what it holds exactly.
func number(text string) float64 {
	d, err := time.ParseDuration(text)
	if n, wrong := strconv.ParseFloat(text, 64); wrong == nil {
		return n
	}
	if err != nil {
		panic(err)
	}
	return float64(d)
}

// rangeText is what a tag allows, in words.
func rangeText(in string, v reflect.Value) string {
	words := strings.Split(strings.TrimPrefix(in, "|"), "|")
	switch {
	case v.Kind() == reflect.String && len(words) == 2:
		return words[0] + " or " + words[1]
	case v.Kind() == reflect.String:
		return "one of " + strings.Join(words, ", ")
	}
	kind := "a number from "
	if v.Type() == reflect.TypeFor[time.Duration]() {
		kind = "a duration from "
	}
	return kind + strings.Replace(strings.TrimSuffix(in, ".."), "..", " to ", 1)
}
