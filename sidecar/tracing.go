package sidecar

import (
	"context"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/telemetry"
)

// flushFor is how long the last spans have to get out, where stopping leaves the time.
const flushFor = time.Second

// startTracing makes the tracer, if there is to be one.
func (s *Sidecar) startTracing() error {
	t := &s.cfg.Tracing
	if !t.On() {
		return nil
	}
	tracer, err := s.telemetry.Tracer(telemetry.TraceConfig{
		GRPC: t.GRPC(), Service: t.Service, Namespace: t.Namespace, Instance: t.Instance, Version: s.cfg.Version, Rate: t.Rate,
		Sampler: strings.ToLower(strings.TrimSpace(t.Sampler)), Propagators: t.Propagators(), Queue: t.Queue, Log: s.log,
	})
	if err != nil {
		return err
	}
	s.tracer = tracer
	s.defers("traces", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), s.flushTime(time.Now()))
		defer cancel()
		tracer.Close(ctx)
		return nil
	})
	return nil
}

// flushTime is how long the last spans may take: what is left of the time that stopping has, and never nothing.
func (s *Sidecar) flushTime(now time.Time) time.Duration {
	const stopFor, least = 3900 * time.Millisecond, 100 * time.Millisecond
	began := s.drained.Load()
	if began == nil {
		return flushFor
	}
	return max(least, min(flushFor, stopFor+s.cfg.Listen.DrainDelay-now.Sub(*began)))
}
