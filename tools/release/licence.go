package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// licences returns the SPDX ids of the modules, where their licence is one that is known here.
func (r *release) licences(modules map[string]string) (map[string]string, error) {
	args := []string{"mod", "download", "-json"}
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		if path != "std" {
			args = append(args, path+"@"+modules[path])
		}
	}
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = r.source, append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("find the modules' licences: %w", err)
	}
	found := map[string]string{"std": "BSD-3-Clause"}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var m struct{ Path, Dir string }
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the output of go mod download: %w", err)
		}
		found[m.Path] = licenceOf(m.Dir)
	}
}

// licenceOf is the SPDX id of the licence in a module's folder, or empty.
func licenceOf(folder string) string {
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		return ""
	}
	for _, file := range files {
		name := strings.ToUpper(filepath.Base(file))
		if !strings.HasPrefix(name, "LICEN") && !strings.HasPrefix(name, "COPYING") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if id := licenceIn(string(text)); id != "" {
			return id
		}
	}
	return ""
}

// licenceIn recognises a licence by sentences that only it has.
func licenceIn(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	has := func(part string) bool { return strings.Contains(text, part) }
	switch {
	case has("Mozilla Public License") && has("2.0"):
		return "MPL-2.0"
	case has("Apache License") && has("Version 2.0"):
		return "Apache-2.0"
	case has("Redistribution and use in source and binary forms"):
		if has("endorse or promote products") {
			return "BSD-3-Clause"
		}
		return "BSD-2-Clause"
	case has("Permission is hereby granted, free of charge") &&
		has("The above copyright notice and this permission notice"):
		return "MIT"
	case has("Permission to use, copy, modify, and/or distribute") ||
		has("Permission to use, copy, modify, and distribute"):
		return "ISC"
	}
	return ""
}
