package telemetry

import (
	"fmt"
	"io"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// writeText writes counters, gauges and the count and sum of histograms, without those of the Go runtime.
func writeText(w io.Writer, from prometheus.Gatherer) error {
	families, err := from.Gather()
	if err != nil {
		return fmt.Errorf("gather metrics: %w", err)
	}
	for _, f := range families {
		name := f.GetName()
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue
		}
		for _, m := range f.GetMetric() {
			if err := writeMetric(w, name, m); err != nil {
				return fmt.Errorf("write metrics: %w", err)
			}
		}
	}
	return nil
}

// writeMetric writes the lines of one metric.
func writeMetric(w io.Writer, name string, m *dto.Metric) error {
	labels := labelText(m.GetLabel())
	if h := m.GetHistogram(); h != nil {
		_, err := fmt.Fprintf(w, "%s_count%s %d\n%s_sum%s %g\n", name, labels, h.GetSampleCount(), name, labels,
			h.GetSampleSum())
		return err
	}
	value := m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
	_, err := fmt.Fprintf(w, "%s%s %g\n", name, labels, value)
	return err
}

// labelText is {a="x",b="y"}, or nothing without labels.
func labelText(pairs []*dto.LabelPair) string {
	if len(pairs) == 0 {
		return ""
	}
	parts := make([]string, len(pairs))
	for i, p := range pairs {
		parts[i] = fmt.Sprintf("%s=%q", p.GetName(), p.GetValue())
	}
	return "{" + strings.Join(parts, ",") + "}"
}
