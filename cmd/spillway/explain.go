package main

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func newExplain() *cobra.Command {
	n := &noun{name: "explain", api: sidecarAPI, verbs: []verb{{
		use: "explain [PATH]", short: "Show what a request would get, and why", run: explain, flags: addRequest,
		long: `explain shows what a request would get now, and why: who the client is, every rule that could apply and
what beat it, what is left, and what both doors would answer. It charges nothing. The request is an HTTP request to
PATH, / where another flag names it, or a RateLimitRequest as JSON on standard input. Who asks is what its headers
show, or what --user, --tenant, --tier and --api-key name. Descriptor trees limit a RateLimitRequest alone, such as
{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}.

--id shows a refusal of the last minutes, or a decision that was made without the shared store: whose it was, by which
rule, and what was left. Its id is the header x-ratelimit-decision of the answer, and id in the log with LOG_DECISIONS;
the request's x-request-id does where the door sees it. The sidecar asks the others that share its store.

It exits with 1 if the request would be refused.`,
	}}}
	return n.word("explain", "explain [PATH]", "explain /search --user ann\nexplain /search --peer 192.0.2.7 "+
		"--header 'x-api-key: KEY'\nexplain <request.json")
}

func addRequest(cmd *cobra.Command) {
	cmd.Flags().String("id", "", "the id of a decision of the last minutes, in place of a request")
	cmd.Flags().String("method", http.MethodGet, "method of the request")
	cmd.Flags().String("peer", "", "address of the connection's other end")
	cmd.Flags().String("host", "", "host of the request")
	cmd.Flags().String("principal", "", "principal of the peer's certificate")
	cmd.Flags().StringArray("header", nil, "a header, as 'name: value' or name=value; may be given several times")
	for _, name := range clientFlags {
		cmd.Flags().String(name, "", "who asks, without a credential: the "+strings.ReplaceAll(name, "api-key",
			"id of the API key"))
	}
}

// clientFlags name who asks, and requestFlags the rest of a request over HTTP.
var (
	clientFlags  = []string{"user", "tenant", "tier", "api-key"}
	requestFlags = []string{"method", "peer", "host", "principal", "header"}
)

// headers are those of the flag.
func (s *session) headers() object {
	all := object{}
	given, _ := s.cmd.Flags().GetStringArray("header")
	for _, one := range given {
		at := strings.IndexAny(one, ":=")
		if at < 1 {
			s.fail(fmt.Errorf("--header is %q and must be 'name: value' or name=value", one))
			continue
		}
		name, value := one[:at], strings.TrimSpace(one[at+1:])
		if before, twice := all[name].(string); twice {
			value = before + "," + value
		}
		all[name] = value
	}
	return all
}

// requestOf is the request that the arguments or the standard input describe.
func (s *session) requestOf(args []string) object {
	if len(args) > 0 {
		return object{"http": s.httpRequest(args[0])}
	}
	if slices.ContainsFunc(slices.Concat(clientFlags, requestFlags), s.given) {
		return object{"http": s.httpRequest("/")}
	}
	if isTerminal(s.cmd.InOrStdin()) {
		s.fail(errors.New("name a PATH, as in spillway explain /search --user ann, or give a RateLimitRequest as " +
			"JSON on " +
			"standard input"))
		return nil
	}
	var request json.RawMessage
	err := json.NewDecoder(s.cmd.InOrStdin()).Decode(&request)
	if err != nil {
		s.fail(fmt.Errorf("read a RateLimitRequest from standard input: %w", err))
	}
	return object{"rls": request}
}

// httpRequest is the request to a path that the flags describe.
func (s *session) httpRequest(path string) object {
	request, client := object{"path": path}, object{}
	for _, name := range requestFlags {
		if value := s.flag(name); value != "" {
			request[name] = value
		}
	}
	delete(request, "header")
	if headers := s.headers(); len(headers) > 0 {
		request["headers"] = headers
	}
	if s.domain != "" {
		request["domain"] = s.domain
	}
	for _, name := range clientFlags {
		if value := s.flag(name); value != "" {
			client[strings.ReplaceAll(name, "-", "_")] = value
		}
	}
	if len(client) > 0 {
		request["client"] = client
	}
	return request
}

func explain(s *session, args []string) {
	if id := s.flag("id"); id != "" {
		s.recall(id, args)
		return
	}
	o := s.ask(http.MethodPost, "/v1/explain", s.requestOf(args), nil).object
	if refusal := new(refusal); errors.As(s.err, &refusal) && refusal.status == http.StatusUnprocessableEntity {
		s.err = refusal.error // of the arguments
	}
	s.print(o, func() {
		s.painted(s.stated(verdict(o)))
		if note := text(o, "note"); note != "" {
			s.line("%s", plain(note))
		}
		if c := inner(o, "client"); c != nil {
			s.line("client: %s", s.clientWords(c))
			if fault := text(c, "fault"); fault != "" {
				s.painted(s.style(red, plain(fault)))
			}
		}
		s.showAttributes(o)
		if rows := objects(o, "charges"); len(rows) > 0 {
			s.line("\ncounters")
			s.table(rows,
				columns(`LEFT :chargeLeft | COST :chargeCost | LIMIT limit:limit | REFUSES :refuses state | WHO `+
					`:owners |
				RULE name | KEY key wide`))
		}
		if rows := objects(o, "considered"); len(rows) > 0 {
			s.line("\nrules that could apply")
			s.table(rows, columns(`WON won:orNo state | WHAT what | NAME :named | SCOPE scope | ACTION action | AT at |
				BEATEN BY :beatenBy`))
		}
		s.line("\nanswers\n  rls        %s\n  ext_authz  %s", door(o, "rls"), door(o, "ext_authz"))
	})
	s.found(isTrue(o, "verdict.refused"))
}

// recall shows a decision of the last minutes.
func (s *session) recall(id string, args []string) {
	if len(args) > 0 || slices.ContainsFunc(slices.Concat(clientFlags, requestFlags), s.given) {
		s.fail(errors.New("--id names a decision by itself: leave out the request"))
	}
	o := s.get("/v1/decision", url.Values{"id": {id}})
	s.print(o, func() {
		s.painted(s.stated(fmt.Sprintf("%s (%s)", text(o, "outcome"), text(o, "status"))))
		s.facts(o, columns(`AT at:when | DOMAIN domain | CLIENT :eventClient | REQUEST :eventRequest |
			RULE :decisionRule | WRITTEN written | LIMIT :decisionLimit | LEFT :decisionLeft | COST cost |
			RETRY AFTER :retryAfter | REASON reason | DEGRADED degraded:outage | KEY key | SIDECAR sidecar | DOOR door |
			ID id | REQUEST ID request_id`))
	})
}

func decisionRule(d object) string {
	scope := text(d, "scope")
	if scope != "" {
		scope = ", counted by " + scope
	}
	return ruleTitle(d) + scope
}

func decisionLimit(d object) string {
	if d["count"] == nil {
		return ""
	}
	return limit(d)
}

// decisionLeft is what was left at that time, where it is known.
func decisionLeft(d object) string {
	if whole(d, "left") < 0 {
		return ""
	}
	return text(d, "left") + ", full or over " + span(d["reset_after"]) + " later"
}

func retryAfter(d object) string {
	if words(d["retry_after"]) == "0" {
		return ""
	}
	return span(d["retry_after"])
}

// eventClient is whom a refusal was for.
func eventClient(e object) string {
	return cmp.Or(names(e, "user", "tenant", "api_key", "address"), entries(e))
}

// eventRequest is what it asked for.
func eventRequest(e object) string {
	return strings.TrimSpace(text(e, "method") + " " + text(e, "path"))
}

// verdict is what the request gets, and by which rule.
func verdict(o object) string {
	d, domain := inner(o, "verdict"), plain(text(o, "domain"))
	outcome := plain(text(d, "outcome"))
	if outcome == "no_limit" && o["note"] != nil {
		outcome = "no rule matches"
	}
	all := fmt.Sprintf("%s (%s)", outcome, text(d, "status"))
	if rule := text(d, "rule"); rule != "" {
		all += " by " + plain(ruleWords(rule))
	}
	switch {
	case domain == "":
		all += ": the request names no domain, and the sidecar has no DEFAULT_DOMAIN"
	case !isTrue(o, "known"):
		all += " in " + domain + ", which has no rules"
	default:
		all += " in " + domain
	}
	if reason := text(d, "reason"); reason != "" {
		all += ": " + plain(reason)
	}
	if d["retry_after"] != nil {
		all += ", again in " + span(d["retry_after"])
	}
	if degraded := text(d, "degraded"); degraded != "" {
		all += ", degraded: " + plain(outage(degraded))
	}
	return all
}

// clientWords are who the client is and how that is known.
func (s *session) clientWords(c object) string {
	who := names(c, "user", "tenant", "tier", "api_key", "address")
	if who == "" {
		return "unknown: neither a peer nor a header shows who it is"
	}
	if text(c, "evidence") == "named" {
		flags := slices.DeleteFunc(slices.Clone(clientFlags), func(name string) bool { return !s.given(name) })
		return who + ", by --" + strings.Join(flags, " and --")
	}
	proof := "not authenticated"
	if isTrue(c, "authenticated") {
		proof = "authenticated"
	}
	return fmt.Sprintf("%s, by %s, %s", who, plain(text(c, "evidence")), proof)
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

func chargeLeft(c object) string {
	all := text(c, "left")
	if whole(c, "left") < 0 {
		all = "not counted"
	}
	if degraded := text(c, "degraded"); degraded != "" {
		all += " (" + outage(degraded) + ")"
	}
	return all
}

func chargeCost(c object) string {
	return strings.TrimPrefix(text(c, "operation")+" "+text(c, "cost"), "spend ")
}

func refuses(c object) string {
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

func named(c object) string {
	return strings.TrimSpace(text(c, "name") + " " + text(c, "pattern"))
}

func beatenBy(c object) string {
	by := strings.TrimSpace(text(c, "beaten_by") + " " + text(c, "beaten_at"))
	return strings.Trim(by+": "+text(c, "because"), ": ")
}

// door is what a door would answer, on one line.
func door(o object, name string) string {
	return plain(cmp.Or(words(readable(at(o, "answers."+name))), "none"))
}

// readable is a value with the bodies of responses as they are read: without base64, and JSON as it is.
func readable(value any) any {
	o, is := value.(object)
	if !is {
		return value
	}
	all := object{}
	for name, value := range o {
		body, is := value.(string)
		if name == "rawBody" && is {
			if read, err := base64.StdEncoding.DecodeString(body); err == nil {
				name, body, value = "body", string(read), string(read)
			}
		}
		if document, err := parse([]byte(body)); name == "body" && err == nil {
			value = document
		}
		all[name] = readable(value)
	}
	return all
}

func orNo(value any) string { return cmp.Or(words(value), "no") }

func orNone(value any) string { return cmp.Or(words(value), "none") }
