package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
)

func newSidecars() *noun {
	return &noun{
		name: "sidecars", one: "sidecar", about: "Every sidecar that shares the store", api: sidecarAPI, path: "/v1/fleet",
		items: "sidecars", key: "id",
		columns: []column{
			{"SIDECAR", "", sidecarName, 0}, {"HOST", "host", nil, 0}, {"VERSION", "version", nil, 0},
			{"RULES", "rules", nil, 0}, {"LOADED", "loaded", when, 0}, {"STARTED", "started", when, 0},
			{"DEGRADED", "degraded", nil, 0}, {"DOMAINS", "domains", nil, 0},
		},
		verbs: []verb{{use: "list", short: "Show every sidecar that shares the store, with its rules", run: listSidecars,
			long: `List every sidecar that shares the store, with its version, its rules and what is degraded. It exits with 1 if their
rules differ.`}},
	}
}

func sidecarName(value any) string {
	s, _ := value.(object)
	if isTrue(s, "self") {
		return text(s, "id") + " (asked)"
	}
	return text(s, "id")
}

func listSidecars(s *session, _ []string) error {
	o, err := s.object("/v1/fleet", nil)
	if err != nil {
		return err
	}
	rows := objects(o, "sidecars")
	err = s.value(o, func() error {
		if isTrue(o, "rules_agree") {
			s.line("%s, all with the same rules", counted(len(rows), "sidecar"))
		} else {
			s.line("%s, and their rules DIFFER: %s", counted(len(rows), "sidecar"), plain(text(o, "rules")))
		}
		return s.table(rows, s.noun.columns)
	})
	if err == nil && !isTrue(o, "rules_agree") {
		err = exit(exitFound)
	}
	return err
}

// showRules prints the rules that a sidecar uses.
func showRules(s *session) error {
	params := url.Values{}
	if s.domain != "" {
		params.Set("domain", s.domain)
	}
	o, err := s.object("/v1/rules", params)
	if err != nil {
		return err
	}
	return s.value(o, func() error {
		s.line("rules %s, in use since %s", either(plain(text(o, "hash")), "none"), either(when(o["loaded"]), "never"))
		for _, d := range objects(o, "domains") {
			s.line("\ndomain %s", plain(text(d, "name")))
			err := s.table(objects(d, "limits"), []column{
				{"RULE", "", ruleName, 0}, {"SCOPE", "scope", nil, 0}, {"LIMIT", "", ruleLimit, 0}, {"ACTION", "action", nil, 0},
				{"MODE", "mode", nil, 0}, {"ON FAILURE", "on_failure", nil, 0}, {"AT", "at", nil, 0},
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func ruleName(value any) string {
	r, _ := value.(object)
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
func ruleLimit(value any) string {
	r, _ := value.(object)
	if l := inner(r, "limit"); l != nil {
		return limit(l)
	}
	all := text(r, "reason")
	if until := when(r["until"]); until != "" {
		all = strings.TrimPrefix(all+", until "+until, ", ")
	}
	return all
}

// follow prints refusals of a sidecar as they happen.
func (s *session) follow() error {
	request, err := s.request(http.MethodGet, "/v1/events", nil, nil)
	if err != nil {
		return err
	}
	s.calls.Timeout = 0
	got, err := s.open(request)
	if err != nil {
		return err
	}
	defer got.Body.Close()
	lines := bufio.NewScanner(got.Body)
	lines.Buffer(nil, maxAnswer)
	for lines.Scan() {
		data, is := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !is {
			continue
		}
		one := &answer{document: json.RawMessage(data)}
		o, err := one.object()
		if err == nil {
			err = s.event(o)
		}
		if err != nil {
			return err
		}
	}
	if s.ctx.Err() != nil {
		return nil
	}
	if err := lines.Err(); err != nil {
		return refused("%w", err)
	}
	return refused("the sidecar has ended the stream")
}

// event prints one refusal: a line, or a line of JSON, or a document of YAML.
func (s *session) event(o object) error {
	if o["count"] != nil {
		s.line("%s refusals are not shown: this command reads too slowly", text(o, "count"))
		return nil
	}
	switch s.format {
	case "json":
		text, err := json.Marshal(o)
		s.line("%s", text)
		return err
	case "yaml":
		s.line("---")
		return s.value(o, nil)
	}
	var who []string
	for _, field := range []string{"user", "tenant", "api_key", "address"} {
		if name := text(o, field); name != "" {
			who = append(who, field+"/"+plain(name))
		}
	}
	request := strings.TrimSpace(text(o, "method") + " " + text(o, "path"))
	s.line("%s  %s  %s  %s  rule %s  %s", when(o["at"]), plain(text(o, "outcome")), plain(text(o, "domain")),
		either(strings.Join(who, " "), "-"), either(plain(text(o, "rule")), "-"), either(plain(request), "-"))
	return nil
}
