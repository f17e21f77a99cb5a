package sidecar

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/door"
	"github.com/spillway-mesh/spillway/door/connlimit"
	"github.com/spillway-mesh/spillway/extauthz"
	"github.com/spillway-mesh/spillway/httpapi"
	"github.com/spillway-mesh/spillway/rlsvc"
)

// serving is what others call: the sockets, and the servers behind them.
type serving struct {
	sockets   listeners
	clients   *connlimit.Limit
	grpc      *grpc.Server
	rls       *rlsvc.Service
	authz     *extauthz.Service
	health    *health.Server
	probes    *admin.Health
	http      []*http.Server
	streams   context.Context // ends when streaming calls have to
	endStream context.CancelFunc
	stopping  chan struct{} // closed when the debug port begins to stop
}

// answerWithin bounds how slowly a client may read an answer over HTTP.
const answerWithin = 15 * time.Second

// Start listens everywhere, and makes the servers. Run lets them serve.
func (v *serving) Start(s *Sidecar) (err error) {
	v.streams, v.endStream = context.WithCancel(context.Background())
	v.stopping = make(chan struct{})
	v.sockets, err = listen(&s.cfg, s.world.Listen)
	if err != nil {
		return err
	}
	s.limitConnections()
	if s.cfg.Admin.Cert != "" {
		secure, err := adminTLS(s.cfg.Admin, s.reports.log)
		if err != nil {
			return fmt.Errorf("set up TLS of the debug port: %w", err)
		}
		v.sockets.debug = tls.NewListener(v.sockets.debug, secure)
	}
	v.grpc, err = s.newServer()
	if err != nil {
		return err
	}
	s.register(v.grpc)
	return s.openPages()
}

// Stop closes the sockets. The workers of the gRPC server, which run from the start, end with their calls, which
// nothing waits for.
func (v *serving) Stop() {
	if v.grpc != nil {
		go v.grpc.Stop()
	}
	if v.clients != nil {
		v.clients.Close()
	}
	v.sockets.close()
	if v.endStream != nil {
		v.endStream()
	}
}

// openPages makes the servers over HTTP.
func (s *Sidecar) openPages() error {
	v := &s.serving
	api, err := s.api()
	if err != nil {
		return err
	}
	v.probes = &admin.Health{Degraded: s.degraded, Unready: s.unready}
	pages := admin.Debug{
		Rules: s.counts.engine.Rules, Stats: s.reports.telemetry.Text, Metrics: s.metrics(),
		Level: s.reports.logLevel(),
		API:   api,
	}
	public := httpapi.ForPrograms(admin.Public(v.probes, s.reports.traceJSON(v.rls.JSON())))
	v.http = []*http.Server{
		httpapi.Server(public, httpapi.ProbeHeaders, answerWithin),
		httpapi.Server(httpapi.ForOwnPages(pages.Handler(), s.cfg.Listen.DebugHost), httpapi.Headers, 0),
	}
	v.http[1].RegisterOnShutdown(func() { close(v.stopping) })
	if v.sockets.metrics != nil {
		host, _, _ := net.SplitHostPort(s.cfg.Metrics.Addr) // it was listened on
		metrics := httpapi.ForOwnPages(admin.Metrics(s.cfg.Metrics.Path, s.metrics()), host)
		v.http = append(v.http, httpapi.Server(metrics, httpapi.ProbeHeaders, answerWithin))
	}
	for _, server := range v.http {
		server.ErrorLog = httpapi.Complaints(s.reports.log)
	}
	return nil
}

// register makes the doors of a gRPC server. That of the rate limit service is also behind /json.
func (s *Sidecar) register(server grpc.ServiceRegistrar) {
	a, intake := s.cfg.Answer, door.NewIntake(s.cfg.Listen.MaxMessage, s.counts.budget.messages)
	s.serving.rls = rlsvc.New(rlsvc.Config{
		Engine: s.counts.engine, Intake: intake, LimitHeaders: a.Headers, LimitHeader: a.LimitHeader,
		RemainingHeader: a.RemainingHeader, ResetHeader: a.ResetHeader, DynamicMetadata: a.Metadata, Quota: a.Quota,
		Plain: strings.EqualFold(a.Style, "reference"), OnPanic: s.reports.observer.Panicked,
	})
	s.serving.rls.Register(server)
	s.serving.authz = extauthz.New(extauthz.Config{
		Engine: s.counts.engine, Intake: intake, DefaultDomain: s.cfg.Rules.DefaultDomain,
		OnPanic: s.reports.observer.Panicked,
	})
	s.serving.authz.Register(server)
}
