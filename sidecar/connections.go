package sidecar

import (
	"net"

	"github.com/spillway-mesh/spillway/door"
	"github.com/spillway-mesh/spillway/door/connlimit"
	"github.com/spillway-mesh/spillway/httpapi"
)

// What a connection takes that does nothing, measured and rounded up.
const (
	grpcBytes = 20 << 10
	httpBytes = 24 << 10
	tlsBytes  = 64 << 10 // more, where it is encrypted
)

// How many connections over HTTP there may be.
const (
	jsonConns    = 256
	debugConns   = 64
	metricsConns = 64
)

// limitConnections puts all sockets under one limit.
func (s *Sidecar) limitConnections() {
	s.serving.clients = connlimit.New(s.counts.budget.peers, s.reports.log)
	const probes, others = httpapi.ProbeHeaders, 2 * httpapi.Headers
	l, message := &s.serving.sockets, int64(s.cfg.Listen.MaxMessage)
	calls := connlimit.Kind{Name: "grpc", Bytes: grpcBytes, HTTP2: true, TLS: s.cfg.TLS.Use}
	l.grpc, l.uds = s.bound(l.grpc, calls), s.bound(l.uds, calls)
	json := connlimit.Kind{Name: "http", Bytes: httpBytes, Conns: jsonConns, Whole: probes + message}
	metrics := connlimit.Kind{Name: "metrics", Bytes: httpBytes, Conns: metricsConns, Whole: probes}
	debug := connlimit.Kind{Name: "debug", Bytes: httpBytes, Conns: debugConns, Whole: others,
		TLS: s.cfg.Admin.Cert != ""}
	l.http, l.metrics, l.debug = s.bound(l.http, json), s.bound(l.metrics, metrics), s.bound(l.debug, debug)
}

// bound puts one socket under the limit.
func (s *Sidecar) bound(l net.Listener, kind connlimit.Kind) net.Listener {
	if kind.TLS {
		kind.Bytes += tlsBytes
	}
	l = s.serving.clients.Listen(l, kind)
	if l != nil && kind.HTTP2 && !kind.TLS {
		return door.Listener{Listener: l}
	}
	return l
}
