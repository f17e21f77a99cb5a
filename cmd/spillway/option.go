package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// option is a flag, which fills in a field of the JSON or a parameter.
type option struct {
	flag, help string
	read       reader // nil: text
}

// field is the name of the flag as the JSON writes it.
func (o *option) field() string {
	switch o.flag {
	case "limit":
		if o.read != nil {
			return "limits"
		}
	case "expires":
		return "expires_at"
	}
	return strings.ReplaceAll(o.flag, "-", "_")
}

// reader makes the value of a field from the text of a flag.
type reader func(text string) (any, error)

// addOptions adds the flags. One that reads limits may be given several times.
func addOptions(cmd *cobra.Command, all []option) {
	for _, o := range all {
		if o.field() == "limits" {
			cmd.Flags().StringArray(o.flag, nil, o.help)
			continue
		}
		cmd.Flags().String(o.flag, "", o.help)
		must(cmd.RegisterFlagCompletionFunc(o.flag, o.completion()))
	}
}

// fixedWords complete flags that take one of a few words.
var fixedWords = map[string][]string{
	"outcome": {
		"allowed", "refused", "blocked", "exempt", "shadowed", "no_limit", "unknown_domain", "malformed",
	},
	"step": {"minute", "hour", "day"},
	"kind": {"rules", "tier", "user", "key", "tenant", "ip", "api_key"},
	"by":   {"name", "last-request"},
}

func (o *option) completion() cobra.CompletionFunc {
	switch o.flag {
	case "tier", "user":
		return completeNames(o.flag + "s")
	case "rule":
		return completeRules
	}
	return cobra.FixedCompletions(fixedWords[o.flag], cobra.ShellCompDirectiveNoFileComp)
}

// fill puts the flags that are given into the body of a change. none removes a field.
func (s *session) fill(body object, all []option) {
	for _, o := range all {
		if !s.given(o.flag) {
			continue
		}
		switch values := s.values(&o); {
		case len(values) == 0:
			delete(body, o.field())
		case o.field() == "limits":
			body["limits"] = values
		default:
			body[o.field()] = values[0]
		}
	}
}

// values are what a flag holds, without none.
func (s *session) values(o *option) (all []any) {
	f := s.cmd.Flag(o.flag)
	texts := []string{f.Value.String()}
	if list, is := f.Value.(pflag.SliceValue); is {
		texts = list.GetSlice()
	}
	for _, text := range texts {
		if text == "none" || text == "" {
			continue
		}
		value, err := any(text), error(nil)
		if o.read != nil {
			value, err = o.read(text)
		}
		if err != nil {
			s.fail(fmt.Errorf("--%s is %q and %w", o.flag, text, err))
		}
		all = append(all, value)
	}
	return all
}

func readWhole(text string) (any, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		err = errors.New("must be a whole number or none")
	}
	return n, err
}

func readDecimal(text string) (any, error) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		err = errors.New("must be a number or none")
	}
	return n, err
}

// readInstant reads an instant, or a time from now such as 90d or 12h.
func readInstant(text string) (any, error) {
	_, err := time.Parse(time.RFC3339, text)
	if err == nil {
		return text, nil
	}
	length, err := time.ParseDuration(text)
	if days, found := strings.CutSuffix(text, "d"); err != nil && found {
		var n int
		n, err = strconv.Atoi(days)
		length = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || length <= 0 {
		return nil, fmt.Errorf("must be an instant such as 2027-01-01T00:00:00Z, or a time from now such as 12h or 90d")
	}
	return time.Now().Add(length).UTC().Format(time.RFC3339), nil
}

// readLimit reads a limit such as 100/1m,burst=200.
func readLimit(text string) (any, error) {
	amount, more, _ := strings.Cut(text, ",")
	limit := object{}
	if amount == "unlimited" {
		limit["unlimited"] = true
	} else {
		count, per, found := strings.Cut(amount, "/")
		n, err := strconv.ParseInt(count, 10, 64)
		if !found || err != nil {
			return nil, fmt.Errorf("%q must be COUNT/PER, such as 100/1m, or unlimited", amount)
		}
		limit["count"], limit["per"] = n, per
	}
	for _, one := range strings.FieldsFunc(more, func(r rune) bool { return r == ',' }) {
		name, value, _ := strings.Cut(one, "=")
		switch name {
		case "name", "algorithm":
			limit[name] = value
		case "burst":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("burst %q must be a whole number", value)
			}
			limit[name] = n
		default:
			return nil, fmt.Errorf("%q must be one of burst=N, algorithm=NAME and name=NAME", one)
		}
	}
	return limit, nil
}

// identity is who is blocked, counted or erased.
type identity struct{ kind, name string }

// String writes it as arguments do.
func (i identity) String() string { return i.kind + "/" + i.name }

// kinds are what an identity may be. A counter may also be of an endpoint or a tier.
var kinds = []string{"user", "tenant", "api_key", "ip"}

// readIdentity reads KIND/NAME. A name alone is a user's; an address needs its kind, so that no user is meant by it.
func readIdentity(text string, more ...string) (identity, error) {
	kind, name, found := strings.Cut(text, "/")
	kind = strings.ReplaceAll(kind, "-", "_")
	known := append(slices.Clone(kinds), more...)
	address, _ := netip.ParseAddr(text)
	switch {
	case !found && text != "" && !address.IsValid():
		return identity{"user", text}, nil
	case name == "" || !slices.Contains(known, kind):
		return identity{}, fmt.Errorf("%q must be a user's name, or KIND/NAME; kinds are %s%s", text,
			strings.Join(known, ", "), meant(kind, known))
	}
	return identity{kind, name}, nil
}
