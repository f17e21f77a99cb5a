package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// settings are the variables of the environment for a run.
type settings struct {
	Rounds       int
	Length       time.Duration // of the measured part of a round
	Cases        []string      // short names
	Parts        []string
	Out          string   // folder of RESULTS.md
	Reference    string   // path of the reference server's program
	Sidecar      string   // path of the sidecar's program
	Base         string   // path of another sidecar that it is compared with; empty: none
	Envoy        string   // path of Envoy's program; empty: no part needs it
	SidecarEnv   []string // NAME=value, beyond what both servers get
	ReferenceEnv []string
}

// warmth is how long requests flow before a round is measured.
const warmth = 400 * time.Millisecond

// parts are what a run consists of, in this order.
var parts = []string{"closed", "open", "lone", "four", "algorithms", "rules", "memory", "strain", "leases", "global",
	"envoy"}

// What a run with a base consists of, unless the environment chooses.
const (
	baseRounds = "16"
	baseCases  = "keys,zipf,hot,four,refused,unmatched"
	baseParts  = "closed,open,lone,rules,memory,strain"
)

// memoryRounds is how often the memory of counters is measured: it differs little from round to round.
const memoryRounds = 3

// rounds is how many rounds each server has in a case of a part. More of them make the error of a median smaller: twice
// as many in the closed loop, which has most goals, and four times as many where leases have a goal, which is nearer to
// 1 than the error of a few rounds. With a base all have the same.
func (set settings) rounds(part string, c testCase) int {
	_, goal := goals[part][c.Short]
	switch {
	case part == "memory":
		return min(set.Rounds, memoryRounds)
	case set.Base != "":
		return set.Rounds
	case part == "leases" && goal:
		return 4 * set.Rounds
	case part == "closed":
		return 2 * set.Rounds
	}
	return set.Rounds
}

// readSettings reads the variables, whose defaults make a run of about twenty minutes, or of twenty-five with a base.
func readSettings(env func(string) string) (settings, error) {
	base := env("BENCH_BASE")
	out, rounds := "bench", "8"
	if base != "" {
		out, rounds = "bin/base", baseRounds
	}
	set := settings{
		Base: base, Out: text(env, "BENCH_OUT", out), Reference: env("BENCH_REFERENCE"), Sidecar: env("BENCH_SIDECAR"),
		SidecarEnv: strings.Fields(env("BENCH_SIDECAR_ENV")), ReferenceEnv: strings.Fields(env("BENCH_REFERENCE_ENV")),
	}
	var err error
	set.Rounds, err = strconv.Atoi(text(env, "BENCH_ROUNDS", rounds))
	if err != nil || set.Rounds < 1 || set.Rounds > 1000 {
		return set, fmt.Errorf("BENCH_ROUNDS is %q: it must be a number from 1 to 1000", env("BENCH_ROUNDS"))
	}
	seconds, err := strconv.ParseFloat(text(env, "BENCH_SECONDS", "1"), 64)
	if err != nil || seconds < 0.5 || seconds > 600 {
		return set, fmt.Errorf("BENCH_SECONDS is %q: it must be a number from 0.5 to 600", env("BENCH_SECONDS"))
	}
	set.Length = time.Duration(seconds * float64(time.Second))
	err = set.choose(env)
	return set, err
}

// choose reads which cases and parts there are.
func (set *settings) choose(env func(string) string) error {
	var known []string
	for _, c := range cases {
		known = append(known, c.Short)
	}
	ofCases, ofParts := env("BENCH_CASES"), env("BENCH_PARTS")
	if set.Base != "" {
		ofCases, ofParts = text(env, "BENCH_CASES", baseCases), text(env, "BENCH_PARTS", baseParts)
	}
	var err error
	set.Cases, err = choice("BENCH_CASES", ofCases, known)
	if err != nil {
		return err
	}
	set.Parts, err = choice("BENCH_PARTS", ofParts, parts)
	if err != nil {
		return err
	}
	if slices.Contains(set.Parts, "envoy") {
		set.Envoy = text(env, "ENVOY_BIN", ".tools/envoy/envoy")
	}
	if slices.Contains(set.Parts, "open") && !slices.Contains(set.Parts, "closed") {
		return errors.New("BENCH_PARTS has open without closed, which measures the capacity that open needs")
	}
	return nil
}

// text returns a variable, or its default when it is not set.
func text(env func(string) string, name, otherwise string) string {
	if v := env(name); v != "" {
		return v
	}
	return otherwise
}

// choice splits a list with commas and checks that all of it is known. Nothing chosen means everything.
func choice(name, list string, known []string) ([]string, error) {
	if list == "" {
		return known, nil
	}
	chosen := strings.Split(list, ",")
	for _, c := range chosen {
		if !slices.Contains(known, c) {
			return nil, fmt.Errorf("%s has %q: it must be a list with commas of %s", name, c, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}
