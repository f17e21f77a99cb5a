package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
)

// allowed are the licences that Spillway's dependencies may have.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0"}

// billed holds the bill to what CycloneDX 1.6 requires, and to the programs.
func billed(t *testing.T, out string, full bool) {
	text := must.Get(os.ReadFile(filepath.Join(out, fmt.Sprintf("spillway_%s.cdx.json", version))))(t)
	var list bom
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	must.Do(t, decoder.Decode(&list))
	serial := regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	_, err := time.Parse(time.RFC3339, list.Metadata.Timestamp)
	if list.Format != "CycloneDX" || list.Spec != "1.6" || list.Version != 1 || !serial.MatchString(list.Serial) ||
		err != nil {
		t.Errorf("the head is %s %s %d %s %s", list.Format, list.Spec, list.Version, list.Serial,
			list.Metadata.Timestamp)
	}
	refs := map[string]bool{}
	for _, c := range slices.Concat([]component{list.Metadata.Component}, list.Metadata.Component.Components,
		list.Components) {
		if c.Type == "" || c.Name == "" || c.Version == "" || c.Ref == "" || refs[c.Ref] {
			t.Errorf("the component %v lacks something, or is there twice", c)
		}
		refs[c.Ref] = true
		if c.Type == "file" {
			continue
		}
		if c.Purl == "" || len(c.Licenses) != 1 || !slices.Contains(allowed, c.Licenses[0].License.ID) {
			t.Errorf("%s has the licence %v, want one of %v", c.Name, c.Licenses, allowed)
		}
	}
	for _, name := range []string{"std", "google.golang.org/grpc", "github.com/spf13/cobra",
		"github.com/redis/go-redis/v9"} {
		if !slices.ContainsFunc(list.Components, func(c component) bool { return c.Name == name }) {
			t.Errorf("the bill lacks %s", name)
		}
	}
	if files := len(list.Metadata.Component.Components); full && files != 8 || !full && files != 2 {
		t.Errorf("the bill lists %d programs", files)
	}
	connected(t, list, refs)
}

// connected: every edge is between components of the bill, and every component is reached from Spillway.
func connected(t *testing.T, list bom, refs map[string]bool) {
	t.Helper()
	edges := map[string][]string{}
	for _, d := range list.Dependencies {
		edges[d.Ref] = d.DependsOn
		for _, ref := range append(d.DependsOn, d.Ref) {
			if !refs[ref] {
				t.Errorf("the bill has no component %s, which is depended on", ref)
			}
		}
	}
	reached := map[string]bool{}
	open := []string{list.Metadata.Component.Ref}
	for len(open) > 0 {
		at := open[0]
		open = open[1:]
		if !reached[at] {
			reached[at] = true
			open = append(open, edges[at]...)
		}
	}
	for _, c := range list.Components {
		if !reached[c.Ref] {
			t.Errorf("nothing depends on %s", c.Name)
		}
	}
}

func TestLicencesAreRecognised(t *testing.T) {
	for want, text := range map[string]string{
		"MIT": "Permission is hereby granted, free of charge, to any person\n" +
			"... The above copyright notice and this permission notice shall be",
		"BSD-3-Clause": "Redistribution and use in source and binary forms ... to endorse or promote products derived",
		"BSD-2-Clause": "Redistribution and use in source and binary forms, with or without\nmodification",
		"Apache-2.0":   "Apache License\n    Version 2.0, January 2004",
		"MPL-2.0":      "Mozilla Public License Version 2.0",
		"":             "All rights reserved.",
	} {
		if got := licenceIn(text); got != want {
			t.Errorf("%q is taken for %q, want %q", text, got, want)
		}
	}
}
