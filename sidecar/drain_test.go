package sidecar

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// unixDial are the options to connect to a Unix socket; @name is an abstract one.
func unixDial(path string) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}),
	}
}

// post sends JSON to /json and returns the status.
func post(t *testing.T, address, body string) int {
	t.Helper()
	client := browser()
	answer := must.Get(client.Post("http://"+address+"/json", "application/json", strings.NewReader(body)))(t)
	answer.Body.Close()
	return answer.StatusCode
}

// hold makes the next calls wait. begun gets a value when one has begun; release ends that wait.
func (s *scripted) hold() (begun <-chan struct{}, release func()) {
	came, gone := make(chan struct{}, 100), make(chan struct{})
	s.do(func() {
		came <- struct{}{}
		<-gone
	})
	return came, func() { close(gone) }
}

func TestDrainLetsACallInFlightFinish(t *testing.T) {
	counter := &scripted{}
	s := beginWith(t, counter, twoPerYear)
	begun, release := counter.hold()
	conn := dial(t, s.Addresses().GRPC)
	answered := make(chan error, 1)
	go func() {
		_, err := ask(conn, "alice")
		answered <- err
	}()
	<-begun
	s.stop()
	servers.Await(t, "the drain", func() error { return s.logs("msg=draining") })
	release()
	err := <-answered
	if err != nil {
		t.Errorf("the call in flight failed: %v", err)
	}
	<-s.done
}

func TestHealthFailsFirst(t *testing.T) {
	s := begin(t, twoPerYear, "DRAIN_DELAY=10s")
	conn := dial(t, s.Addresses().GRPC)
	watch, err := healthv1.NewHealthClient(conn).Watch(t.Context(), &healthv1.HealthCheckRequest{Service: "ratelimit"})
	if err != nil {
		t.Fatal(err)
	}
	expectHealth(t, watch, healthv1.HealthCheckResponse_SERVING)
	s.stop()
	expectHealth(t, watch, healthv1.HealthCheckResponse_NOT_SERVING)
	for name, client := range map[string]healthv1.HealthClient{"the open connection": healthv1.NewHealthClient(conn),
		"a new one": healthv1.NewHealthClient(dial(t, s.Addresses().GRPC))} {
		got, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{})
		if err != nil || got.GetStatus() != healthv1.HealthCheckResponse_NOT_SERVING {
			t.Errorf("health on %s = %v, %v, want NOT_SERVING", name, got.GetStatus(), err)
		}
	}
	servers.Await(t, "the end of readiness", func() error { return s.logs("msg=draining") })
	expectPage(t, s.Addresses().HTTP, "/healthcheck", 500, "")
	expectPage(t, s.Addresses().HTTP, "/readyz", 503, "draining")
	expectCodes(t, conn, "alice", codeOK)
	<-s.done
}

func expectHealth(t *testing.T, watch grpc.ServerStreamingClient[healthv1.HealthCheckResponse],
	want healthv1.HealthCheckResponse_ServingStatus) {
	t.Helper()
	got, err := watch.Recv()
	if err != nil || got.GetStatus() != want {
		t.Errorf("a watcher of health hears %v, %v, want %v", got.GetStatus(), err, want)
	}
}

func TestAWatcherOfHealthDoesNotHoldUpTheEnd(t *testing.T) {
	s := begin(t, twoPerYear)
	watch := must.Get(healthv1.NewHealthClient(dial(t, s.Addresses().GRPC)).Watch(t.Context(),
		&healthv1.HealthCheckRequest{}))(t)
	expectHealth(t, watch, healthv1.HealthCheckResponse_SERVING)
	s.stop()
	expectHealth(t, watch, healthv1.HealthCheckResponse_NOT_SERVING)
	<-s.done
	if s.logs(cutOff) == nil {
		t.Error("a watcher of health was cut off, as a call that hangs is")
	}
}

// cutOff is logged when calls did not end in the time that they have.
const cutOff = "calls are still in flight, cutting them off"

func TestGoneThoughACallHangs(t *testing.T) {
	counter := &scripted{}
	s := beginWith(t, counter, twoPerYear)
	begun, release := counter.hold()
	conn := dial(t, s.Addresses().GRPC)
	answered := make(chan struct{})
	go func() {
		ask(conn, "alice")
		close(answered)
	}()
	<-begun
	start := time.Now()
	s.stop()
	<-s.done // if it waited for the call, it would never be gone
	t.Logf("it took %v to stop", time.Since(start))
	if err := s.logs(cutOff); err != nil {
		t.Errorf("the call was not cut off: %v", err)
	}
	release()
	<-answered
}
