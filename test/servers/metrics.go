package servers

import (
	"bufio"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// Metrics is one scrape of a sidecar: values by series, which is a name with its labels.
type Metrics map[string]float64

// pages is a client that keeps no connection.
var pages = http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// Scrape reads /metrics of a debug port.
func Scrape(address string) (Metrics, error) {
	r, err := pages.Get("http://" + address + "/metrics")
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	m := Metrics{}
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		text := lines.Text()
		end := strings.LastIndexByte(text, ' ')
		if end < 1 || text[0] == '#' {
			continue
		}
		value, err := strconv.ParseFloat(text[end+1:], 64)
		if err == nil {
			m[text[:end]] = value
		}
	}
	return m, lines.Err()
}

// each calls visit for each series of a name that has all of the labels, written as name="value".
func (m Metrics) each(name string, labels []string, visit func(series string, value float64)) {
next:
	for series, value := range m {
		if series != name && !strings.HasPrefix(series, name+"{") {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(series, label) {
				continue next
			}
		}
		visit(series, value)
	}
}

// Sum is the sum over all series of a name that have all of the labels, written as name="value"; 0 without any.
func (m Metrics) Sum(name string, labels ...string) int64 {
	var total float64
	m.each(name, labels, func(_ string, value float64) { total += value })
	return int64(total)
}

// Most is the largest of all series of a name; 0 without any.
func (m Metrics) Most(name string) float64 {
	var most float64
	m.each(name, nil, func(_ string, value float64) { most = max(most, value) })
	return most
}

// By is the sums of a name by the values of one label, without those that are 0.
func (m Metrics) By(name, label string) map[string]int64 {
	value := regexp.MustCompile(`[{,]` + label + `="([^"]*)"`)
	sums := map[string]int64{}
	m.each(name, nil, func(series string, n float64) {
		found := value.FindStringSubmatch(series)
		if found != nil && n != 0 {
			sums[found[1]] += int64(n)
		}
	})
	return sums
}
