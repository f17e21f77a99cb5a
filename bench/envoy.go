package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The open loop behind Envoy makes so few requests that the machine is mostly idle. Its rounds are longer than others,
// since the P99 of few requests is their slowest one.
const requestRate, requestRun = 500, 5 // a second, and times the length of other rounds

const goalP95, goalP99 = 5.0, 10.0 // what a request may take, in milliseconds

// example is the configuration of Envoy, from the top of the tree.
const example = "examples/envoy/envoy.yaml"

// edgeRules are the usual rules in the domain of the example.
var edgeRules = ruleFiles{"edge": strings.Replace(ruleFile, "domain: bench", "domain: edge", 1)}

// envoyCase has a user in each request, in the header x-user.
var envoyCase = testCase{Name: "a request", Short: "request",
	Work: work{Domain: "edge", Keys: []string{"user"}, Values: keys}}

// envoyPrograms are the same sidecar twice. Envoy asks only the second one: requests to the first lack the header.
func envoyPrograms(set settings) []program {
	return []program{
		{unlimited, set.Sidecar, set.SidecarEnv, ofSidecar},
		{spillway, set.Sidecar, set.SidecarEnv, ofSidecar},
	}
}

// steady is an open loop of HTTP requests at a rate that is the same on every machine.
func (s *session) steady(c testCase) order {
	o := s.closed(c)
	o.Rate, o.Run = requestRate, requestRun*s.set.Length
	return o
}

// front is an Envoy before a sidecar. This program makes the requests, and is the application behind Envoy.
type front struct {
	*process
	app  *http.Server
	run  time.Duration
	flow func(length time.Duration) tally
	warm tally
}

// startFront starts an Envoy that asks the sidecar of a setup, and lets requests flow until all is warm.
func (s *session) startFront(ctx context.Context, f *setup, o order) (source, error) {
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	e := &front{run: o.Run, app: &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "Hello.\n") })}}
	go func() { _ = e.app.Serve(listener) }()
	address, admin := "127.0.0.1:"+ports[0], "127.0.0.1:"+ports[1]
	e.process, err = s.startEnvoy(address, admin, listener.Addr().String(), f.nodes[0].grpc)
	if err != nil {
		return nil, errors.Join(err, e.app.Close())
	}
	err = e.await(ctx, func() error {
		_, err := fetch("http://" + admin + "/ready")
		return err
	})
	if err != nil {
		return nil, e.wait(err)
	}
	c := &client{limited: f.name != unlimited, url: "http://" + address + "/",
		Client: http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: requestRate}}}
	next := draws(o.Work, rand.New(rand.NewPCG(o.Seed, 1)))
	e.flow = func(length time.Duration) tally { return c.flow(ctx, o.Rate, length, next) }
	e.warm = e.flow(o.Warm)
	return e, nil
}

// startEnvoy starts Envoy with the example's configuration, and as many workers as the closed loops have connections.
func (s *session) startEnvoy(listener, admin, app, sidecar string) (*process, error) {
	text, err := os.ReadFile(example)
	if err != nil {
		return nil, err
	}
	config, err := bootstrap(string(text), listener, admin, app, sidecar)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(s.folder, "envoy.yaml")
	err = os.WriteFile(file, []byte(config), 0o600)
	if err != nil {
		return nil, err
	}
	return startProcess(s.folder, "envoy", s.set.Envoy, nil, "-c", file, "--disable-hot-restart", "-l", "error",
		"--concurrency", strconv.Itoa(perServer))
}

// bootstrap is the example's configuration with the addresses of this run, of the form host:port.
func bootstrap(text, listener, admin, app, sidecar string) (string, error) {
	for _, change := range [][2]string{{"0.0.0.0:10000", listener}, {"127.0.0.1:9901", admin}, {"127.0.0.1:8000", app},
		{"127.0.0.1:8081", sidecar}} {
		if n := strings.Count(text, envoyAddress(change[0])); n != 1 {
			return "", fmt.Errorf("%s has the address %s %d times: it must have it once", example, change[0], n)
		}
		text = strings.Replace(text, envoyAddress(change[0]), envoyAddress(change[1]), 1)
	}
	return text, nil
}

// envoyAddress is host:port in Envoy's words.
func envoyAddress(address string) string {
	host, port, _ := strings.Cut(address, ":")
	return "{address: " + host + ", port_value: " + port + "}"
}

// runLoad is the measured part.
func (e *front) runLoad(measured func() error) (outcome, error) {
	begin, before := time.Now(), e.cpu()
	t := e.flow(e.run)
	elapsed, cpu := time.Since(begin), e.cpu()-before
	err := measured()
	t.fail(e.warm.errors, e.warm.first)
	return t.outcome(elapsed, cpu), e.wait(err)
}

// cpu is the processor time of this process and of Envoy so far.
func (e *front) cpu() time.Duration {
	envoy, err := cpuOf(e.cmd.Process.Pid)
	if err != nil {
		return 0
	}
	return envoy + cpuOfThisProcess()
}

// wait ends Envoy and the application.
func (e *front) wait(err error) error {
	e.stop()
	if err != nil {
		err = e.complain(err)
	}
	return errors.Join(err, e.app.Close())
}

// client makes HTTP/1.1 requests on connections that it keeps.
type client struct {
	http.Client
	url     string
	limited bool // requests have a user
}

// flow makes requests at a rate that does not depend on the answers. Latency counts from the time at which a request
// was due.
func (c *client) flow(ctx context.Context, rate float64, length time.Duration, next func() int) tally {
	var all tally
	var mu sync.Mutex
	var wait sync.WaitGroup
	pace(ctx, rate, length, func(at time.Time) {
		user := fmt.Sprintf("v%06d", next())
		wait.Go(func() {
			err := c.ask(ctx, user)
			took := time.Since(at)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				all.fail(1, err.Error())
				return
			}
			all.latencies = append(all.latencies, int64(took))
		})
	})
	wait.Wait()
	return all
}

// ask makes a request, which must be admitted, and reads all of the answer. Envoy adds x-ratelimit-limit to answers
// where the sidecar decided. Without that header, Envoy let the request through on its own.
func (c *client) ask(ctx context.Context, user string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		return err
	}
	if c.limited {
		r.Header.Set("x-user", user)
	}
	answer, err := c.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	switch decided := answer.Header.Get("x-ratelimit-limit") != ""; {
	case err != nil:
		return err
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("Envoy answered %s", answer.Status)
	case c.limited && !decided:
		return errors.New("Envoy let a request through without an answer of the sidecar")
	case decided && !c.limited:
		return errors.New("the sidecar was asked about a request without a user")
	}
	return nil
}

// envoyTable has the percentiles of requests without and with a limit, and what the limit adds.
func envoyTable(studies ...*study) table {
	t := table{head: []string{"request", "p50 ms", "p95 ms", "goal", "p99 ms", "goal", "requests", "without Redis"},
		left: 1}
	for _, s := range studies {
		var before, last [3]float64
		for _, server := range s.servers() { // without a limit first
			before = last
			for i, of := range []func(figures) float64{p50, p95, p99} {
				last[i] = s.median(server, of)
			}
			row := []string{server, number(last[0]), number(last[1]), "", number(last[2]), ""}
			if server == spillway {
				row[3], row[5] = s.verdict(last[1], goalP95), s.verdict(last[2], goalP99)
			}
			requests := s.sum(server, func(f figures) float64 { return f.Decisions })
			t.rows = append(t.rows, append(row, thousands(int64(requests)), thousands(int64(s.withoutRedis(server)))))
		}
		t.rows = append(t.rows, []string{"difference", number(last[0] - before[0]), number(last[1] - before[1]), "",
			number(last[2] - before[2]), "", "", ""})
	}
	return t
}

// verdict is a goal, and whether a percentile meets it.
func (s *study) verdict(value, goal float64) string {
	switch {
	case len(s.faults()) > 0:
		return "no result"
	case value <= goal:
		return atMost(goal) + ", met"
	}
	return atMost(goal) + ", missed"
}
