package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// pages fetches what servers publish about themselves.
var pages = http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{}}

func fetch(url string) (string, error) {
	r, err := pages.Get(url)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return "", err
	}
	if r.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s: %.200s", url, r.Status, body)
	}
	return string(body), nil
}

// self is what a server counts about itself since its start.
type self struct {
	Allocations  float64
	WithoutRedis float64 // decisions
}

// ofSidecar reads the metrics of a sidecar.
func ofSidecar(debug string) (self, error) {
	text, err := fetch("http://" + debug + "/metrics")
	if err != nil {
		return self{}, err
	}
	return parseMetrics(text)
}

// parseMetrics reads the metrics of a sidecar.
func parseMetrics(text string) (self, error) {
	allocations, found := sumMetric(text, "go_memstats_mallocs_total")
	if !found {
		return self{}, fmt.Errorf("the sidecar's metrics lack go_memstats_mallocs_total")
	}
	// the series is missing until the first such decision
	without, _ := sumMetric(text, "spillway_degraded_decisions_total")
	return self{Allocations: allocations, WithoutRedis: without}, nil
}

// sumMetric adds up all series of a metric in Prometheus' text format, and reports whether there is one.
func sumMetric(text, name string) (sum float64, found bool) {
	for line := range strings.Lines(text) {
		rest, is := strings.CutPrefix(line, name)
		if !is || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		// No label of these metrics has a blank behind a brace in its value.
		if i := strings.LastIndex(rest, "} "); i >= 0 {
			rest = rest[i+1:]
		}
		value, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
		if err == nil {
			sum, found = sum+value, true
		}
	}
	return sum, found
}

// ofReference reads the memory statistics of the reference server. It makes no decision without Redis: its caller gets
// an error.
func ofReference(debug string) (self, error) {
	text, err := fetch("http://" + debug + "/stats")
	if err != nil {
		return self{}, err
	}
	return parseStats(text)
}

// parseStats reads the lines "name: JSON" of that page.
func parseStats(text string) (self, error) {
	_, rest, found := strings.Cut("\n"+text, "\nmemstats: ")
	line, _, _ := strings.Cut(rest, "\n")
	var memory struct{ Mallocs *float64 }
	err := json.Unmarshal([]byte(line), &memory)
	if !found || err != nil || memory.Mallocs == nil {
		return self{}, fmt.Errorf("/stats of the reference server lacks the count of allocations: %w",
			errors.Join(err, io.ErrUnexpectedEOF))
	}
	return self{Allocations: *memory.Mallocs}, nil
}
