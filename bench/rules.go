package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// memoryKeys is how many counters Redis has when their memory is measured.
const memoryKeys = 50_000

// ruleAlgorithms are those that rules are measured with, by the domain that has the rule.
var ruleAlgorithms = []struct{ domain, algorithm string }{
	{"bucket", "token_bucket"}, {"sliding", "sliding_window"}, {"fixed", "fixed_window"},
}

// scopedRules has a domain with one rule for each algorithm. A token comes back in 86 seconds, so counters stay in
// Redis, and none is spent in a run.
func scopedRules() ruleFiles {
	files := ruleFiles{}
	for _, a := range ruleAlgorithms {
		rule := "{ name: each, scope: user, limit: { count: 1000, per: 24h, algorithm: " + a.algorithm + " } }"
		files[a.domain] = "domain: " + a.domain + "\nrules: [" + rule + "]\n"
	}
	return files
}

// ruleCases has a case for each of these algorithms, over so many users.
func ruleCases(users int) []testCase {
	var all []testCase
	for _, a := range ruleAlgorithms {
		all = append(all, testCase{Name: a.algorithm, Short: a.domain,
			Work: work{Domain: a.domain, Keys: []string{"user"}, Values: users}})
	}
	return all
}

// weigh fills an empty Redis with a counter for each request of a case, and returns what one of them takes there.
func weigh(ctx context.Context, f *setup, o order) (figures, error) {
	err := f.redis.empty()
	if err != nil {
		return figures{}, err
	}
	before, err := f.redis.usedMemory()
	if err != nil {
		return figures{}, err
	}
	o.Fill, o.Targets = true, f.targets()[:1]
	err = sweep(ctx, o)
	if err != nil {
		return figures{}, fmt.Errorf("fill Redis through %s: %w", f.name, err)
	}
	after, err := f.redis.usedMemory()
	if err != nil {
		return figures{}, err
	}
	key, err := f.redis.usualKey()
	made := figures{Counter: (after - before) / float64(o.Work.Values), Key: key}
	return made, err
}

// usedMemory is what Redis has allocated, in bytes.
func (r *redisServer) usedMemory() (float64, error) {
	text, err := r.conn.do("INFO memory")
	if err != nil {
		return 0, r.complain(err)
	}
	_, rest, _ := strings.Cut(text, "\nused_memory:")
	line, _, _ := strings.Cut(rest, "\r\n")
	return strconv.ParseFloat(line, 64)
}

// usualKey is the memory of a key and its value: the median of some keys, because a few are not counters.
func (r *redisServer) usualKey() (float64, error) {
	var sizes []float64
	for range 15 {
		key, err := r.conn.do("RANDOMKEY")
		if err != nil {
			return 0, r.complain(err)
		}
		text, err := r.conn.do("MEMORY USAGE " + key)
		if err != nil {
			return 0, r.complain(err)
		}
		size, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, r.complain(err)
		}
		sizes = append(sizes, size)
	}
	return median(sizes), nil
}

// memoryTable has the bytes of a counter, a row for each server.
func memoryTable(studies ...*study) table {
	t := table{head: []string{"case", "server", "bytes of a counter", "of these key and value"}, left: 2}
	for _, s := range studies {
		for _, server := range s.servers() {
			counter := s.median(server, func(f figures) float64 { return f.Counter })
			key := s.median(server, func(f figures) float64 { return f.Key })
			t.rows = append(t.rows, []string{s.Case.Name, server, fmt.Sprintf("%.1f", counter),
				fmt.Sprintf("%.0f", key)})
		}
	}
	return t
}
