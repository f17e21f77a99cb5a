package main

import (
	"fmt"
	"net/http"
	"time"
)

const erasureEvery = 250 * time.Millisecond // how often the command asks whether an erasure has ended

func newErasures() *noun {
	return &noun{
		name: "erasures", one: "erasure", about: "Erasures: the traces of one person, removed in all places", api: controlAPI,
		path: "/v1/erasures", key: "id", next: []string{"before=id"},
		columns: []column{
			{"ID", "id", nil, 0}, {"DOMAIN", "domain", nil, 0}, {"KIND", "kind", nil, 0}, {"STATE", "state", nil, state},
			{"ASKED BY", "asked_by", nil, 0}, {"ASKED AT", "asked_at", when, 0}, {"FINISHED AT", "finished_at", when, 0},
			{"PROBLEM", "problem", nil, 0},
		},
		verbs: []verb{
			{use: "list", short: "List erasures, the newest first"},
			{use: "show ID", short: "Show an erasure, and what each place had and has", run: showErasure, example: "show 1"},
			{use: "create [KIND/]NAME", short: "Remove the traces of one person in all places, and prove it", run: createErasure,
				example: "create ann --domain shop\ncreate ip/192.0.2.7 --domain shop",
				long: `create removes what a control knows of one identity: its row and API keys, its block and counters in Redis, its usage
and events, in the database, in streams that are not copied yet and in the archive, and its name in the audit. The name
may also be an HMAC, as events show it. The leading control then searches every place again; the command waits for that,
and prints for each place what was removed and what is left. It exits with 1 if something is left, and may be repeated.
It needs the role admin. Stop or block the person first: what comes in meanwhile is counted as left.`},
		},
	}
}

func createErasure(s *session, args []string) error {
	id, err := readIdentity(args[0])
	if err != nil {
		return err
	}
	path, err := s.inDomain("identities", id.kind, id.name)
	if err != nil {
		return err
	}
	a, err := s.ask(http.MethodDelete, path, nil, nil)
	if err != nil {
		return err
	}
	e, err := s.awaitErasure(a)
	if err != nil {
		return err
	}
	return s.erasure(e)
}

func showErasure(s *session, args []string) error {
	_, now, err := s.found(args)
	if err != nil {
		return err
	}
	e, err := now.object()
	if err != nil {
		return err
	}
	return s.erasure(e)
}

// awaitErasure asks until the erasure has ended, and prints why it takes long.
func (s *session) awaitErasure(a *answer) (object, error) {
	printed := ""
	for {
		e, err := a.object()
		if err == nil && whole(e, "id") == 0 {
			err = refused("the answer must name an erasure")
		}
		if err != nil || text(e, "state") != "open" {
			return e, err
		}
		if problem := text(e, "problem"); problem != printed {
			printed = problem
			fmt.Fprintf(s.cmd.ErrOrStderr(), "erasure %s is tried again: %s\n", text(e, "id"), plain(problem))
		}
		select {
		case <-s.ctx.Done():
			return nil, s.ctx.Err()
		case <-time.After(erasureEvery):
		}
		a, err = s.get("/v1/erasures/"+text(e, "id"), nil)
		if err != nil {
			return nil, err
		}
	}
}

// erasure prints what each place had and has.
func (s *session) erasure(e object) error {
	err := s.value(e, func() error {
		err := s.table(objects(e, "places"), []column{
			{"PLACE", "place", nil, 0}, {"REMOVED", "removed", nil, 0}, {"LEFT", "left", nil, 0},
		})
		switch text(e, "state") {
		case "done":
			s.line("erasure %s is done: a second search found nothing", text(e, "id"))
		case "open":
			s.line("erasure %s is not done yet: %s", text(e, "id"), plain(text(e, "problem")))
		default:
			s.line("erasure %s ended, and something is left: %s", text(e, "id"), plain(text(e, "problem")))
		}
		return err
	})
	if err == nil && text(e, "state") != "done" {
		err = exit(exitFound)
	}
	return err
}
