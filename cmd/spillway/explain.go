package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
)

func newExplain() *cobra.Command {
	var headers map[string]string
	cmd := &cobra.Command{
		Use: "explain [PATH]", Short: "Show what a request would get, and why", Args: between(0, 1),
		Long: `explain shows what a request would get now, and why: who the client is, every rule that could apply and what beat
it, what is left, and what both doors would answer. It charges nothing. The request is an HTTP request to PATH, or a
RateLimitRequest as JSON on standard input without PATH.

It exits with 1 if the request would be refused.`,
		Example:           "  spillway explain /search --method POST --peer 192.0.2.7\n  spillway explain <request.json",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := start(cmd, sidecarAPI)
			if err != nil {
				return err
			}
			body, err := s.explained(args, headers)
			if err != nil {
				return err
			}
			return s.explain(body)
		},
	}
	cmd.Flags().String("method", http.MethodGet, "method of the request")
	cmd.Flags().String("peer", "", "address of the connection's other end")
	cmd.Flags().String("host", "", "host of the request")
	cmd.Flags().String("principal", "", "principal of the peer's certificate")
	cmd.Flags().StringToStringVar(&headers, "header", nil, "headers, as name=value")
	return cmd
}

// explained is the request that the arguments or the standard input describe.
func (s *session) explained(args []string, headers map[string]string) (object, error) {
	if len(args) == 0 {
		var request json.RawMessage
		err := json.NewDecoder(s.cmd.InOrStdin()).Decode(&request)
		if err != nil {
			return nil, fmt.Errorf("read a RateLimitRequest from standard input: %w", err)
		}
		return object{"rls": request}, nil
	}
	request := object{"path": args[0]}
	for _, name := range []string{"method", "peer", "host", "principal"} {
		if value := s.flag(name); value != "" {
			request[name] = value
		}
	}
	if s.domain != "" {
		request["domain"] = s.domain
	}
	if len(headers) > 0 {
		request["headers"] = headers
	}
	return object{"http": request}, nil
}

func (s *session) explain(body object) error {
	a, err := s.ask(http.MethodPost, "/v1/explain", body, nil)
	if err != nil {
		return err
	}
	o, err := a.object()
	if err == nil {
		err = s.value(o, func() error { return s.showExplained(o) })
	}
	if err == nil && isTrue(o, "verdict.refused") {
		err = exit(exitFound)
	}
	return err
}

func (s *session) showExplained(o object) error {
	s.line("%s", verdict(o))
	if c := inner(o, "client"); c != nil {
		s.line("client: %s", clientWords(c))
	}
	s.showAttributes(o)
	if rows := objects(o, "charges"); len(rows) > 0 {
		s.line("\ncounters")
		err := s.table(rows, []column{
			{"LEFT", "", chargeLeft, 0}, {"COST", "", chargeCost, 0}, {"LIMIT", "limit", limit, 0}, {"REFUSES", "", refuses, 0},
			{"RULE", "rule", nil, 0}, {"KEY", "key", nil, 0},
		})
		if err != nil {
			return err
		}
	}
	if rows := objects(o, "considered"); len(rows) > 0 {
		s.line("\nrules that could apply")
		err := s.table(rows, []column{
			{"WON", "", won, state}, {"WHAT", "what", nil, 0}, {"NAME", "", named, 0}, {"SCOPE", "scope", nil, 0},
			{"ACTION", "action", nil, 0}, {"AT", "at", nil, 0}, {"BEATEN BY", "", beatenBy, 0},
		})
		if err != nil {
			return err
		}
	}
	s.line("\nanswers\n  rls        %s\n  ext_authz  %s", door(o, "rls"), door(o, "ext_authz"))
	return nil
}

// verdict is what the request gets, and by which rule.
func verdict(o object) string {
	d := inner(o, "verdict")
	all := fmt.Sprintf("%s (%s)", text(d, "outcome"), text(d, "status"))
	if rule := text(d, "rule"); rule != "" {
		all += " by " + plain(rule)
	}
	domain := text(o, "domain")
	switch {
	case domain == "":
		all += ": the request names no domain, and the sidecar has no DEFAULT_DOMAIN"
	case !isTrue(o, "known"):
		all += " in " + plain(domain) + ", which has no rules"
	default:
		all += " in " + plain(domain)
	}
	if reason := text(d, "reason"); reason != "" {
		all += ": " + plain(reason)
	}
	if d["retry_after"] != nil {
		all += ", again in " + span(d["retry_after"])
	}
	if degraded := text(d, "degraded"); degraded != "" {
		all += ", degraded: " + plain(degraded)
	}
	return all
}

func clientWords(c object) string {
	var parts []string
	for _, field := range []string{"user", "tenant", "tier", "api_key", "address"} {
		if name := text(c, field); name != "" {
			parts = append(parts, strings.ReplaceAll(field, "_", " ")+" "+plain(name))
		}
	}
	proof := "not authenticated"
	if isTrue(c, "authenticated") {
		proof = "authenticated"
	}
	if len(parts) == 0 {
		return "unknown: neither a peer nor a header shows who it is"
	}
	return fmt.Sprintf("%s, by %s, %s", strings.Join(parts, ", "), plain(text(c, "evidence")), proof)
}

// showAttributes prints what is known of the request, and how servers may read its path.
func (s *session) showAttributes(o object) {
	for _, a := range objects(o, "attributes") {
		from := ""
		if a["descriptor"] != nil {
			from = fmt.Sprintf(" (descriptor %s)", text(a, "descriptor"))
		}
		s.line("%s: %s%s", plain(text(a, "name")), plain(text(a, "value")), from)
	}
	if readings, _ := o["readings"].([]any); len(readings) > 1 {
		s.line("the path may be read as: %s", plain(words(o["readings"])))
	}
	if factor := whole(o, "factor"); factor > 1 {
		s.line("cost: times %d", factor)
	}
}

func chargeLeft(value any) string {
	c, _ := value.(object)
	all := text(c, "left")
	if strings.HasPrefix(all, "-") {
		all = "not counted"
	}
	if degraded := text(c, "degraded"); degraded != "" {
		all += " (" + degraded + ")"
	}
	return all
}

func chargeCost(value any) string {
	c, _ := value.(object)
	if operation := text(c, "operation"); operation != "spend" {
		return operation + " " + text(c, "cost")
	}
	return text(c, "cost")
}

func refuses(value any) string {
	c, _ := value.(object)
	all := "no"
	switch {
	case isTrue(c, "penalized"):
		all = "cool-down, again in " + span(c["retry_after"])
	case isTrue(c, "refuses"):
		all = "again in " + span(c["retry_after"])
	}
	if !isTrue(c, "enforced") {
		all += " (not enforced)"
	}
	return all
}

func won(value any) string {
	c, _ := value.(object)
	return either(text(c, "won"), "no")
}

func named(value any) string {
	c, _ := value.(object)
	return strings.TrimSpace(text(c, "name") + " " + text(c, "pattern"))
}

func beatenBy(value any) string {
	c, _ := value.(object)
	by := strings.TrimSpace(text(c, "beaten_by") + " " + text(c, "beaten_at"))
	return strings.TrimPrefix(strings.TrimSuffix(by+": "+text(c, "because"), ": "), ": ")
}

// door is what a door would answer, on one line.
func door(o object, name string) string { return plain(either(text(o, "answers."+name), "none")) }
