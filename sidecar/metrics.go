package sidecar

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/spillway-mesh/spillway/telemetry"
)

// startStatsd begins to send statistics, if there is a server for them.
func (s *Sidecar) startStatsd() error {
	m := &s.cfg.Metrics
	if !m.SendsStatsd() {
		return nil
	}
	sender := s.telemetry.Statsd(telemetry.StatsdConfig{
		Address: net.JoinHostPort(m.StatsdHost, strconv.Itoa(int(m.StatsdPort))), Dog: m.DogStatsd, Tags: m.Labels, Every: m.Flush,
		OnError: func(err error) { s.log.Warn("statistics not sent to statsd", "error", err) },
	})
	s.defers("statsd", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), s.flushTime(time.Now()))
		defer cancel()
		sender.Close(ctx)
		return nil
	})
	return nil
}
