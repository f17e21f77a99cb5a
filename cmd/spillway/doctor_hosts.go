package main

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// askListening asks where the sidecar listens.
func (d *doctor) askListening() {
	d.listening = inner(d.get("/v1/config", nil), "listens")
	d.err = nil // whether the sidecar answers is checked elsewhere
}

// checkHosts checks that one of the hosts of a cluster may be where the sidecar listens, and that all take connections:
// beside that one the others are other sidecars.
func (d *doctor) checkHosts(cluster string, hosts []object) {
	healthy := 0
	reached := slices.ContainsFunc(hosts, func(host object) bool { return d.misledHost(host) == "" })
	for _, host := range hosts {
		if unhealthy(inner(host, "health_status")) == "" {
			healthy++
		}
		at := leadsTo(host)
		failed, tried := hostCount(host, "cx_connect_fail"), hostCount(host, "cx_total")
		if wrong := d.misledHost(host); wrong != "" && !reached {
			d.wrong("envoy", "the cluster %q leads to %s, %s", cluster, at, wrong)
		} else if failed > 0 && failed == tried {
			d.wrong("envoy", "the cluster %q leads to %s, which took none of %s: check that a sidecar listens for "+
				"gRPC "+
				"there%s", cluster, at, counted(int(tried), "connection"), d.butListens())
		}
	}
	if healthy == 0 {
		d.wrong("envoy", "the cluster %q has no healthy host, of %d", cluster, len(hosts))
	}
}

// butListens adds where the sidecar that was asked listens, where that is known.
func (d *doctor) butListens() string {
	if d.listening == nil {
		return ""
	}
	return "; the one that was asked listens at " + text(d.listening, "grpc")
}

// leadsTo is where a host of a cluster is: an address with its port, or a socket.
func leadsTo(host object) string {
	if path := text(host, "address.pipe.path"); path != "" {
		return path
	}
	return net.JoinHostPort(text(host, "address.socket_address.address"), text(host,
		"address.socket_address.port_value"))
}

// hostCount is what Envoy has counted of a host.
func hostCount(host object, name string) int64 {
	for _, one := range objects(host, "stats") {
		if text(one, "name") == name {
			return whole(one, "value")
		}
	}
	return 0
}

// misledHost is misled for a host of a cluster.
func (d *doctor) misledHost(host object) string {
	return d.misled(leadsTo(host), hostCount(host, "rq_success") > 0)
}

// misled is what is wrong with where a host is, and what it must be; empty: nothing, or that is not known. Of a host on
// another machine, which answers, the port may be that of a proxy in between.
func (d *doctor) misled(at string, answers bool) string {
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		return d.misledSocket(at)
	}
	grpcHost, grpcPort, _ := net.SplitHostPort(text(d.listening, "grpc"))
	here := isLoopback(host)
	switch {
	case d.listening == nil, !here && (answers || port == grpcPort), port == grpcPort && covers(grpcHost, host):
		return ""
	case port == grpcPort:
		return "and the sidecar listens for gRPC at " + text(d.listening, "grpc") + " alone: set address: " + grpcHost +
			", or GRPC_HOST of the sidecar"
	}
	for _, one := range []struct{ name, field string }{{"HTTP", "http"}, {"debug", "debug"}} {
		if _, other, _ := net.SplitHostPort(text(d.listening, one.field)); other == port {
			return "the " + one.name + " port of the sidecar: its gRPC port is " + grpcPort + ", so set " +
				"port_value: " + grpcPort
		}
	}
	if here {
		return "where the sidecar does not listen: its gRPC port is " + grpcPort + ", so set port_value: " + grpcPort
	}
	return ""
}

// misledSocket is misled for a socket of Unix.
func (d *doctor) misledSocket(at string) string {
	socket := text(d.listening, "socket")
	if socket == "" || at == socket {
		return ""
	}
	return "and the socket of the sidecar is " + socket
}

// isLoopback reports whether an address is of the machine that uses it.
func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback() || strings.EqualFold(host, "localhost")
}

// covers reports whether who listens at one address is reached at the other.
func covers(listens, host string) bool {
	one, err := netip.ParseAddr(listens)
	other, wrong := netip.ParseAddr(host)
	return err != nil || wrong != nil || one.IsUnspecified() || one.Unmap() == other.Unmap()
}
