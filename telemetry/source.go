package telemetry

import (
	"context"
	"log/slog"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
)

// Source names this sidecar to a collector of traces and metrics. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES go
// before it.
type Source struct {
	Service   string // name of this service
	Namespace string // of the service; empty: none
	Instance  string // of the service
	Version   string // of this program; empty: none
}

func (s Source) resource(log *slog.Logger) *resource.Resource {
	words := []attribute.KeyValue{attribute.String("service.name", s.Service),
		attribute.String("service.instance.id", s.Instance)}
	if s.Namespace != "" {
		words = append(words, attribute.String("service.namespace", s.Namespace))
	}
	if s.Version != "" {
		words = append(words, attribute.String("service.version", s.Version))
	}
	made, err := resource.New(context.Background(), resource.WithTelemetrySDK(), resource.WithAttributes(words...),
		resource.WithFromEnv())
	if err != nil {
		log.Warn("OTEL_RESOURCE_ATTRIBUTES cannot be read in full", "error", err)
	}
	return made
}

// logOpenTelemetry lets the libraries of OpenTelemetry write to this log.
func logOpenTelemetry(log *slog.Logger) {
	otel.SetLogger(logr.FromSlogHandler(log.Handler()))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("opentelemetry: a setting or an export went wrong", "error", err)
	}))
}
