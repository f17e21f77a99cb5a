package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
)

func newDoctor() *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "Find what is wired wrong between Envoy, the sidecar and Redis", Args: between(0, 0),
		Long: `doctor asks Envoy's admin port, and the sidecar, by its readiness also about Redis. It prints one line for each thing
that is wrong: a filter, route or cluster that is missing in Envoy, a domain without rules, calls that fail, a sidecar that
is not ready, what works worse than it should, and rules that differ between sidecars.

It exits with 1 if something is wrong.`,
		Example:           "  spillway doctor\n  spillway doctor --envoy 127.0.0.1:15000 --server 127.0.0.1:9182 --http none",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              diagnose,
	}
	cmd.Flags().String("envoy", "127.0.0.1:9901", "the admin port of Envoy; none: do not ask it")
	cmd.Flags().String("http", "127.0.0.1:8080", "the HTTP port of the sidecar, which has its readiness; none: do not ask it")
	return cmd
}

// doctor collects what is wrong.
type doctor struct {
	*session
	findings []object
	domains  map[string]bool // with rules; nil: unknown
}

func diagnose(cmd *cobra.Command, _ []string) error {
	s, err := start(cmd, sidecarAPI)
	if err != nil {
		return err
	}
	d := &doctor{session: s}
	d.checkRules()
	if at := s.flag("http"); at != "none" {
		d.checkReadiness(at)
	}
	d.checkSidecars()
	if at := s.flag("envoy"); at != "none" {
		d.checkEnvoy(at)
	}
	if len(d.findings) == 0 && !s.data() {
		s.line("nothing is wrong")
		return nil
	}
	err = s.list("findings", d.findings, columns("PART part | WHAT IS WRONG finding"))
	if err == nil && len(d.findings) > 0 {
		err = exit(exitFound)
	}
	return err
}

// wrong adds a finding.
func (d *doctor) wrong(part, format string, args ...any) {
	d.findings = append(d.findings, object{"part": part, "finding": fmt.Sprintf(format, args...)})
}

// checkRules checks that the sidecar answers and has rules.
func (d *doctor) checkRules() {
	o := d.get("/v1/rules", nil)
	if d.err != nil {
		d.wrong("sidecar", "%v", d.err)
		d.err = nil
		return
	}
	d.domains = map[string]bool{}
	for _, one := range objects(o, "domains") {
		d.domains[text(one, "name")] = true
	}
	if len(d.domains) == 0 {
		d.wrong("sidecar", "it has no rules, so nothing is limited: set RULES, or publish some")
	}
}

// checkReadiness checks that the sidecar takes requests, and what works worse than it should, such as Redis.
func (d *doctor) checkReadiness(at string) {
	body, err := d.page(at, "/readyz")
	var r *refusal
	switch {
	case errors.As(err, &r) && r.status == http.StatusServiceUnavailable:
		d.wrong("sidecar", "it is not ready: %s", strings.TrimSpace(string(body)))
		return
	case err != nil:
		d.wrong("sidecar", "%v; --http names its HTTP port", err)
		return
	}
	_, list, _ := strings.Cut(strings.TrimSuffix(strings.TrimSpace(string(body)), ")"), "(degraded: ")
	for one := range strings.SplitSeq(list, "; ") {
		if part, what, found := strings.Cut(one, ": "); found {
			d.wrong(part, "%s", what)
		} else if one != "" {
			d.wrong("sidecar", "%s", one)
		}
	}
}

// checkSidecars compares the sidecars that share the store.
func (d *doctor) checkSidecars() {
	o := d.get("/v1/fleet", nil)
	if d.err != nil {
		if d.domains != nil { // else the sidecar does not answer at all
			d.wrong("sidecars", "%v", d.err)
		}
		d.err = nil
		return
	}
	if !isTrue(o, "rules_agree") {
		d.wrong("sidecars", "their rules differ: spillway sidecars list shows which")
	}
	for _, s := range objects(o, "sidecars") {
		if degraded := text(s, "degraded"); degraded != "" && !isTrue(s, "self") {
			d.wrong("sidecars", "%s on %s is degraded: %s", text(s, "id"), text(s, "host"), degraded)
		}
	}
}

// page reads a page of Envoy, or of the sidecar's HTTP port. A refusal comes with its body.
func (d *doctor) page(at, path string) ([]byte, error) {
	if !strings.Contains(at, "://") {
		at = "http://" + at
	}
	request, err := http.NewRequestWithContext(d.ctx, http.MethodGet, at+path, nil)
	if err != nil {
		return nil, err
	}
	got, err := (&http.Client{Timeout: askWithin, Transport: &http.Transport{Proxy: nil}}).Do(request)
	if err != nil {
		return nil, err
	}
	defer got.Body.Close()
	body, err := io.ReadAll(io.LimitReader(got.Body, maxAnswer))
	if err == nil && got.StatusCode != http.StatusOK {
		err = &refusal{got.StatusCode, fmt.Errorf("%s%s answers %s", at, path, got.Status)}
	}
	return body, err
}

// dump reads a page of Envoy that is JSON.
func (d *doctor) dump(at, path string) (object, error) {
	body, err := d.page(at, path)
	if err != nil {
		return nil, err
	}
	o, err := parse(body)
	if err != nil {
		err = fmt.Errorf("%s%s must be JSON: --envoy names the admin port of Envoy", at, path)
	}
	return o, err
}
