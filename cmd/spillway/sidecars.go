package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

func newSidecars() *noun {
	return &noun{
		name: "sidecars", one: "sidecar", about: "Every sidecar that shares the store", api: sidecarAPI,
		columns: columns(`SIDECAR :sidecarName | HOST host | RULES rules | CANARY :canariesOf |
			DEGRADED :degradedNow bad | VERSION version |
			LOADED loaded:when | STARTED started:when | DOMAINS domains`),
		verbs: []verb{{use: "list", short: "Show every sidecar that shares the store, with its rules",
			run: listSidecars,
			long: `List every sidecar that shares the store, with its version, its rules and what is degraded. It
exits with 1 if their rules differ, unless a canary is the reason.`}},
	}
}

func sidecarName(s object) string {
	switch {
	case isTrue(s, "self"):
		return text(s, "id") + " (asked)"
	case s["not_heard_for"] != nil:
		return text(s, "id") + " (not heard for " + span(s["not_heard_for"]) + ")"
	}
	return text(s, "id")
}

// degradedNow is what does not work at a sidecar; it is unknown where the sidecar sends nothing.
func degradedNow(s object) string {
	if s["not_heard_for"] != nil {
		return "?"
	}
	return outagesOf(s["degraded"])
}

// unknown prints what an answer lacks because the store does not answer, and why.
func (s *session) unknown(o object) {
	if why := text(o, "unknown"); why != "" {
		s.painted(s.style(red, "not known"), ": ", plain(why))
	}
}

func listSidecars(s *session, _ []string) {
	o := s.get("/v1/sidecars", nil)
	rows, agree := objects(o, "sidecars"), isTrue(o, "rules_agree")
	s.print(o, func() {
		trying := slices.ContainsFunc(rows, func(o object) bool { return canariesOf(o) != "" })
		if agree && trying {
			s.line("%s, some with a canary, which is meant", counted(len(rows), "sidecar"))
		} else if agree {
			s.line("%s, all with the same rules%s", counted(len(rows), "sidecar"), lastHeard(rows))
		} else {
			s.painted(counted(len(rows), "sidecar"), ", and their rules ", s.style(red, "DIFFER"), ": ",
				plain(text(o, "rules")))
		}
		s.unknown(o)
		s.table(rows, s.noun.columns)
	})
	s.found(!agree)
}

// lastHeard restricts what is said of all sidecars, where one is not heard.
func lastHeard(rows []object) string {
	if slices.ContainsFunc(rows, func(o object) bool { return o["not_heard_for"] != nil }) {
		return " as last heard"
	}
	return ""
}

// canariesOf are the canaries that a sidecar uses, such as shop@4.
func canariesOf(s object) string {
	var all []string
	for _, t := range objects(s, "trials") {
		if isTrue(t, "canary") {
			all = append(all, text(t, "domain")+"@"+text(t, "version"))
		}
	}
	return strings.Join(all, ", ")
}

// showRules prints the rules that a sidecar uses.
func (s *session) showRules() {
	o := s.get("/v1/rules", s.withDomain(url.Values{}))
	s.print(o, func() {
		s.line("rules %s, in use since %s", cmp.Or(plain(text(o, "hash")), "none"), cmp.Or(when(o["loaded"]), "never"))
		for _, d := range objects(o, "domains") {
			s.line("\ndomain %s", plain(text(d, "name")))
			s.table(objects(d, "limits"),
				columns(`RULE :ruleName | SCOPE scope | LIMIT :ruleLimit | ACTION action | MATCH match |
				MODE mode | ON FAILURE on_failure | AT at`))
		}
	})
}

func ruleName(r object) string {
	all := text(r, "rule")
	if name := text(r, "name"); name != "" && name != all {
		all += " (" + name + ")"
	}
	if account := text(r, "account"); account != "" {
		all += " of " + account
	}
	return all
}

// ruleLimit is the limit of a rule, or the reason and end of a block.
func ruleLimit(r object) string {
	if l := inner(r, "limit"); l != nil {
		return limit(l) + map[bool]string{true: " post-paid"}[isTrue(r, "post_paid")]
	}
	all := text(r, "reason")
	if until := when(r["until"]); until != "" {
		all = strings.TrimPrefix(all+", until "+until, ", ")
	}
	return all
}

// follow prints refusals of a sidecar as they happen.
func (s *session) follow() {
	request, err := s.request(http.MethodGet, "/v1/events", nil, s.withDomain(url.Values{}))
	if s.failed(err) {
		return
	}
	s.calls.Timeout = 0
	got, err := s.open(request)
	if s.failed(err) {
		return
	}
	defer got.Body.Close()
	lines := bufio.NewScanner(got.Body)
	lines.Buffer(nil, maxAnswer)
	for s.err == nil && lines.Scan() {
		data, is := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if is {
			s.event(data)
		}
	}
	if s.ctx.Err() == nil {
		s.fail(refused("the sidecar has ended the stream"))
	}
}

// event prints one refusal: a line, a line of JSON, or a document of YAML.
func (s *session) event(data []byte) {
	o, err := parse(data)
	switch {
	case s.failed(err):
	case o["count"] != nil && !s.data():
		s.line("%s refusals are not shown: this command reads too slowly", text(o, "count"))
	case s.format == "json":
		text, _ := json.Marshal(o) // it came as JSON
		s.line("%s", text)
	case s.format == "yaml":
		s.line("---")
		s.print(o, nil)
	default:
		s.line("%s  %s  %s  %s  rule %s  %s", when(o["at"]), plain(text(o, "outcome")), plain(text(o, "domain")),
			cmp.Or(eventClient(o), "-"), cmp.Or(plain(ruleWords(text(o, "rule"))), "-"),
			cmp.Or(plain(eventRequest(o)), "-"))
	}
}

// entries are the descriptor entries of a refusal, such as user=ann.
func entries(o object) string {
	all := object{}
	maps.Copy(all, inner(o, "entries"))
	for _, d := range objects(o, "descriptors") {
		for _, one := range objects(d, "entries") {
			all[text(one, "key")] = one["value"]
		}
	}
	var texts []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		texts = append(texts, plain(key+"="+words(all[key])))
	}
	return strings.Join(texts, ", ")
}
