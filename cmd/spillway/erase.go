package main

import (
	"fmt"
	"net/http"
	"time"
)

const erasureEvery = 250 * time.Millisecond // how often the command asks whether an erasure has ended

func newErasures() *noun {
	return &noun{
		name: "erasures", one: "erasure", about: "Erasures: the traces of one person, removed in all places",
		api:  controlAPI,
		path: "/v1/erasures", key: "id", next: "before=id",
		columns: columns(`ID id | DOMAIN domain | KIND kind | STATE state state | ASKED BY asked_by | 
			ASKED AT asked_at:when | FINISHED AT finished_at:when | PROBLEM problem`),
		verbs: []verb{
			{use: "list", short: "List erasures, the newest first"},
			{use: "show ID", short: "Show an erasure, and what each place had and has", example: "show 1",
				run: func(s *session, args []string) {
					_, now := s.existing(args)
					s.showErasure(now.object)
				}},
			{use: "create [KIND/]NAME", short: "Remove the traces of one person in all places, and prove it",
				run:     createErasure,
				example: "create ann --domain shop\ncreate ip/192.0.2.7 --domain shop",
				long: `create removes what a control knows of one identity from the database, Redis and the archive.
The name may also be an HMAC, as events show it. The leading control then searches every place again; the command
waits for that, and prints for each place what was removed and what is left. It exits with 1 if something is left, and
may be repeated. It needs the role admin. Stop or block the person first: what comes in meanwhile is counted as left.`},
		},
	}
}

func createErasure(s *session, args []string) {
	id, err := readIdentity(args[0])
	s.fail(err)
	e := s.ask(http.MethodDelete, s.below("identities", id.kind, id.name), nil, nil).object
	printed := ""
	for s.err == nil && text(e, "state") == "open" {
		if problem := text(e, "problem"); problem != printed {
			printed = problem
			fmt.Fprintf(s.cmd.ErrOrStderr(), "erasure %s is tried again: %s\n", text(e, "id"), plain(problem))
		}
		select {
		case <-s.ctx.Done():
			s.fail(s.ctx.Err())
		case <-time.After(erasureEvery):
			e = s.get("/v1/erasures/"+text(e, "id"), nil)
		}
	}
	s.showErasure(e)
}

// showErasure prints what each place had and has.
func (s *session) showErasure(e object) {
	s.print(e, func() {
		s.table(objects(e, "places"), columns("PLACE place | REMOVED removed | LEFT left"))
		switch text(e, "state") {
		case "done":
			s.line("erasure %s is done: a second search found nothing", text(e, "id"))
		case "open":
			s.line("erasure %s is not done yet: %s", text(e, "id"), plain(text(e, "problem")))
		default:
			s.line("erasure %s ended, and something is left: %s", text(e, "id"), plain(text(e, "problem")))
		}
	})
	s.found(text(e, "state") != "done")
}
