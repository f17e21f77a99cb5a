package telemetry

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"

	prometheusbridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// MetricExportConfig is how metrics are sent over OTLP. Where they go, with which headers and certificates, is in the
// variables OTEL_EXPORTER_OTLP_* of the process, and how often in OTEL_METRIC_EXPORT_INTERVAL.
type MetricExportConfig struct {
	GRPC   bool // metrics go over gRPC, else over HTTP
	Source Source
	Log    *slog.Logger
}

// MetricExport sends all metrics over OTLP, from a goroutine of its own: the same ones, under the same names, that
// Prometheus reads. Nothing waits for it, and an export that fails is counted, logged and not repeated.
type MetricExport struct {
	provider *sdkmetric.MeterProvider
	exporter *countedExporter
}

// ExportMetrics begins to send metrics, until Close. It does not wait for a server.
func (t *Telemetry) ExportMetrics(cfg MetricExportConfig) (*MetricExport, error) {
	logOpenTelemetry(cfg.Log)
	to, err := cfg.open()
	if err != nil {
		return nil, fmt.Errorf("set up the export of metrics: %w", err)
	}
	e := &countedExporter{Exporter: to, counters: &t.totals, log: cfg.Log}
	e.life, e.cut = context.WithCancel(context.Background())
	bridge := prometheusbridge.NewMetricProducer(prometheusbridge.WithGatherer(t.registry))
	reader := sdkmetric.NewPeriodicReader(e, sdkmetric.WithProducer(idsAsBytes{bridge}))
	return &MetricExport{exporter: e, provider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader),
		sdkmetric.WithResource(cfg.Source.resource(cfg.Log)))}, nil
}

func (c *MetricExportConfig) open() (sdkmetric.Exporter, error) {
	if c.GRPC {
		return otlpmetricgrpc.New(context.Background())
	}
	return otlpmetrichttp.New(context.Background())
}

// Close sends the metrics once more, until ctx ends.
func (m *MetricExport) Close(ctx context.Context) {
	late := context.AfterFunc(ctx, m.exporter.cut)
	defer late()
	err := m.provider.Shutdown(ctx)
	m.exporter.cut()
	if err != nil && !errors.Is(err, sdkmetric.ErrReaderShutdown) {
		m.exporter.log.Warn("the last metrics were not sent in time", "error", err)
	}
}

// idsAsBytes makes bytes of the ids in exemplars: the bridge passes the hex digits on, which no collector finds.
type idsAsBytes struct{ sdkmetric.Producer }

// Produce returns the metrics as they are now.
func (p idsAsBytes) Produce(ctx context.Context) ([]metricdata.ScopeMetrics, error) {
	all, err := p.Producer.Produce(ctx)
	for _, scope := range all {
		for _, m := range scope.Metrics {
			sum, is := m.Data.(metricdata.Sum[float64])
			if !is {
				continue // histograms are native ones: the bridge leaves their exemplars out
			}
			for i := range sum.DataPoints {
				for j := range sum.DataPoints[i].Exemplars {
					e := &sum.DataPoints[i].Exemplars[j]
					e.TraceID, e.SpanID = bytesOf(e.TraceID), bytesOf(e.SpanID)
				}
			}
		}
	}
	return all, err
}

// bytesOf returns the bytes of an id in hex digits.
func bytesOf(digits []byte) []byte {
	id, err := hex.DecodeString(string(digits))
	if err != nil {
		return nil
	}
	return id
}

// countedExporter counts exports.
type countedExporter struct {
	sdkmetric.Exporter
	counters *totals
	log      *slog.Logger
	life     context.Context // ends an export that outlasts the sidecar
	cut      context.CancelFunc
}

// Export sends metrics. A failure is counted and logged, and not returned.
func (e *countedExporter) Export(ctx context.Context, metrics *metricdata.ResourceMetrics) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(e.life, cancel)
	defer stop()
	err := e.Exporter.Export(ctx, metrics)
	if err != nil {
		e.counters.MetricsFailed.Add(1)
		e.log.Warn("metrics could not be sent over OTLP", "error", err)
		return nil
	}
	e.counters.MetricsSent.Add(1)
	return nil
}
