package telemetry

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Measure makes metrics of what a room counts. take returns a struct, or a pointer to one, whose tags name them:
//
//	Lost int64 `metric:"log_lines_lost_total" help:"Lines that could not be written."`
//
// is spillway_log_lines_lost_total. A name that ends in _total is a counter's, any other a gauge's. Of several fields
// with one name the first has the help. A number below 0 is not known, and left out; durations
// and times are in seconds; a text is a label of the value 1, unless it is empty. Structs and slices in the struct are
// read likewise. Further tags:
//
//	label   of a text without a metric: its name as a label of all numbers in the struct; of a map and of a text with a
//	        metric: the name of the label
//	labels  a label and its value, as stream=usage, for the field and all in it
//	compat  a name in the reference server under which the number appears as well, as redis_pool.cx_total, for
//	        Prometheus and statsd; with ,gauge behind it for a gauge
//	statsd  its name there, where that is another one
func (t *Telemetry) Measure(take func() any) {
	t.register.MustRegister(statsCollector{take})
	t.sources.add(func(s *Statsd) {
		readStats(reflect.ValueOf(take()), nil, func(r reading) {
			switch {
			case r.compat == "":
			case r.gauge:
				s.gauge("ratelimit."+r.statsd, r.value)
			default:
				s.counter("ratelimit."+r.statsd, r.value)
			}
		})
	})
}

// statsCollector collects the numbers of one snapshot.
type statsCollector struct{ take func() any }

// Describe sends nothing: the metrics are those that Collect sends.
func (statsCollector) Describe(chan<- *prometheus.Desc) {}

// Collect takes one snapshot and sends its numbers.
func (c statsCollector) Collect(out chan<- prometheus.Metric) {
	helps := map[string]string{}
	readStats(reflect.ValueOf(c.take()), nil, func(r reading) {
		kind := prometheus.CounterValue
		if r.gauge {
			kind = prometheus.GaugeValue
		}
		name := "spillway_" + r.name
		if r.compat != "" {
			name = "ratelimit_" + strings.ReplaceAll(r.compat, ".", "_")
		}
		if r.help == "" {
			r.help = helps[name]
		}
		helps[name] = r.help
		var names, values []string
		for pair := range slices.Chunk(r.labels, 2) {
			names, values = append(names, pair[0]), append(values, strings.ToValidUTF8(cut(pair[1]), "_"))
		}
		m := prometheus.MustNewConstMetric(prometheus.NewDesc(name, r.help, names, nil), kind, r.value, values...)
		if r.trace != nil {
			m = prometheus.MustNewMetricWithExemplars(m, *r.trace)
		}
		out <- m
	})
}

// reading is one number of a snapshot: under a name of this program, or under one of the reference server.
type reading struct {
	name, compat, statsd, help string
	gauge                      bool
	labels                     []string // names and values in turn
	value                      float64
	trace                      *prometheus.Exemplar // of a counter; nil: none
}

// readStats calls send with each number that has a tag.
func readStats(v reflect.Value, labels []string, send func(reading)) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			readStats(v.Elem(), labels, send)
		}
	case reflect.Slice:
		for i := range v.Len() {
			readStats(v.Index(i), labels, send)
		}
	case reflect.Struct:
		readFields(v, labels, send)
	}
}

func readFields(v reflect.Value, labels []string, send func(reading)) {
	for field, value := range v.Fields() {
		if name := field.Tag.Get("label"); name != "" && field.Tag.Get("metric") == "" {
			labels = append(slices.Clip(labels), name, value.String())
		}
	}
	for field, value := range v.Fields() {
		readField(field, value, labels, send)
	}
}

// readField calls send with the number, or the numbers, of one field.
func readField(field reflect.StructField, value reflect.Value, labels []string, send func(reading)) {
	if label, text, found := strings.Cut(field.Tag.Get("labels"), "="); found {
		labels = append(slices.Clip(labels), label, text)
	}
	name, compat := field.Tag.Get("metric"), field.Tag.Get("compat")
	if name == "" && compat == "" && field.IsExported() {
		readStats(value, labels, send)
	}
	one := reading{name: name, help: field.Tag.Get("help"), labels: labels}
	if name != "" {
		one.gauge = !strings.HasSuffix(name, "_total")
		sendField(one, field.Tag.Get("label"), value, send)
	}
	if compat != "" {
		one.name, one.compat = "", strings.TrimSuffix(compat, ",gauge")
		one.gauge, one.statsd = one.compat != compat, cmp.Or(field.Tag.Get("statsd"), one.compat)
		sendField(one, "", value, send)
	}
}

// sendField sends the number of a field, or the numbers of a map by its keys.
func sendField(one reading, label string, v reflect.Value, send func(reading)) {
	if v.Kind() == reflect.Map {
		for keys := v.MapRange(); keys.Next(); {
			each := one
			each.labels = append(slices.Clip(one.labels), label, keys.Key().String())
			sendField(each, "", keys.Value(), send)
		}
		return
	}
	if text, is := textOf(v); is {
		if text != "" {
			one.labels, one.value = append(slices.Clip(one.labels), label, text), 1
			send(one)
		}
		return
	}
	if v.Type() == reflect.TypeFor[counted]() {
		held := v.Interface().(counted)
		one.trace, v = held.trace, reflect.ValueOf(held.n)
	}
	one.value = numberOf(v)
	if one.value >= 0 {
		send(one)
	}
}

// textOf is the text of a field that has one.
func textOf(v reflect.Value) (text string, is bool) {
	if v.Kind() == reflect.String {
		return v.String(), true
	}
	if !v.CanAddr() {
		return "", false
	}
	held, is := v.Addr().Interface().(*atomic.Pointer[string])
	if is && held.Load() != nil {
		text = *held.Load()
	}
	return text, is
}

// numberOf is the value of a field as a metric has it.
func numberOf(v reflect.Value) float64 {
	if v.CanAddr() { // first: what is atomic must not be copied
		if n, is := v.Addr().Interface().(*atomic.Int64); is {
			return float64(n.Load())
		}
	}
	switch x := v.Interface().(type) {
	case time.Duration:
		return x.Seconds()
	case time.Time:
		return float64(x.Unix())
	case bool:
		if x {
			return 1
		}
		return 0
	}
	switch {
	case v.CanInt():
		return float64(v.Int())
	case v.CanUint():
		return float64(v.Uint())
	}
	return v.Float()
}
