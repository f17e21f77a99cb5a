package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spillway-mesh/spillway/whatif/replay"
)

// mapping reads the flags that say which fields mean what.
func (f *replayFlags) mapping(m *replay.Mapping) error {
	m.User, m.Tenant, m.Tier = f.user, f.tenant, f.tier
	m.Fields = map[string]string{}
	for _, text := range f.fields {
		one, err := parsePair("--field", text)
		if err != nil {
			return err
		}
		m.Fields[one.Name] = one.Field
	}
	for _, list := range []struct {
		flag  string
		texts []string
		to    *[]replay.Pair
	}{{"--header", f.headers, &m.Headers}, {"--entry", f.entries, &m.Entries}} {
		for _, text := range list.texts {
			one, err := parsePair(list.flag, text)
			if err != nil {
				return err
			}
			*list.to = append(*list.to, one)
		}
	}
	for _, text := range f.descriptors {
		parts, err := parseDescriptor(text)
		if err != nil {
			return err
		}
		m.Descriptors = append(m.Descriptors, parts)
	}
	return nil
}

func parsePair(flag, text string) (replay.Pair, error) {
	name, field, found := strings.Cut(text, "=")
	if !found || name == "" || field == "" {
		return replay.Pair{}, fmt.Errorf("%s %q: write NAME=FIELD", flag, text)
	}
	return replay.Pair{Name: name, Field: field}, nil
}

// parseDescriptor reads KEY=TEXT,KEY={FIELD},…
func parseDescriptor(text string) (parts []replay.Part, err error) {
	for entry := range strings.SplitSeq(text, ",") {
		key, value, found := strings.Cut(entry, "=")
		if !found || key == "" || value == "" {
			return nil, fmt.Errorf("--descriptor %q: write KEY=TEXT or KEY={FIELD}, with commas between entries", text)
		}
		part := replay.Part{Key: key, Text: value}
		if strings.HasPrefix(value, "{") && strings.HasSuffix(value, "}") {
			part = replay.Part{Key: key, Field: value[1 : len(value)-1]}
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// parseBytes reads an amount of memory.
func parseBytes(text string) (int64, error) {
	factor, digits := int64(1), text
	for i, unit := range []string{"KiB", "MiB", "GiB"} {
		if rest, found := strings.CutSuffix(text, unit); found {
			factor, digits = 1<<(10*(i+1)), rest
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 1 || n > 1<<42/factor {
		return 0, fmt.Errorf("--memory %q: write an amount such as 256MiB or 2GiB", text)
	}
	return n * factor, nil
}
