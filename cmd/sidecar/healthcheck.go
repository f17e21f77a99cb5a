package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/sidecar/settings"
)

// healthTimeout is the longest a health check waits. Container engines give it 3 s or more.
const healthTimeout = 2 * time.Second

// healthcheck asks a sidecar with the same environment whether it is ready, or lives, by the path of the probe, for
// containers without a shell or curl. It writes one line. Engines reserve exit codes above 1, so even a bad environment
// is a 1 here.
func healthcheck(program, path string, environ []string, stdout, stderr io.Writer) int {
	cfg, err := settings.FromEnvironment(environ, program)
	if err != nil {
		problems := strings.ReplaceAll(err.Error(), "\n", "; ")
		fmt.Fprintf(stderr, "unhealthy: the environment is not usable: %s\n", problems)
		return exitError
	}
	answer, err := askProbe(cfg.Listen.Host, cfg.Listen.Port, path)
	if err != nil {
		fmt.Fprintf(stderr, "unhealthy: %v\n", err)
		return exitError
	}
	fmt.Fprintf(stdout, "healthy: %s\n", answer)
	return exitOK
}

// askProbe returns what the sidecar answers on a path.
func askProbe(host string, port uint16, path string) (string, error) {
	if port == 0 {
		return "", errors.New("PORT is 0, so it is unknown where the sidecar listens")
	}
	url := "http://" + net.JoinHostPort(reachable(host), strconv.Itoa(int(port))) + path
	// No proxy, also with HTTP_PROXY: the sidecar is on this machine.
	client := http.Client{Timeout: healthTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	if err != nil {
		return "", fmt.Errorf("read the answer of %s: %w", url, err)
	}
	text := strings.Join(strings.Fields(string(body)), " ")
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answers %s: %s", url, answer.Status, text)
	}
	return text, nil
}

// reachable is where to ask a sidecar that listens on host: on loopback when it listens on every interface.
func reachable(host string) string {
	ip := net.ParseIP(host)
	switch {
	case ip == nil || !ip.IsUnspecified():
		return host
	case ip.To4() != nil:
		return "127.0.0.1"
	default:
		return "::1"
	}
}
