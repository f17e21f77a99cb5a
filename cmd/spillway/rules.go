package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/whatif/rulediff"
)

func newRules() *noun {
	return &noun{
		name: "rules", one: "rule", about: "Rules: in files, at a sidecar, and as versions that a control publishes",
		api: controlAPI, path: "versions", items: "versions", key: "version", mark: "@", next: "before=version",
		columns: columns(`VERSION version | IN FORCE in_force state | RULES rules | BY created_by |
			AT created_at:when | NOTE note`),
		facts: columns(`DOMAIN domain | VERSION version | RULES rules | BY created_by | AT created_at:when | NOTE note |
			SHA256 hash`),
		verbs: []verb{
			{use: "list", short: "List what is in force in each domain, or with --domain its versions", run: listRules,
				example: "list\nlist --domain shop"},
			{use: "show [@VERSION]", short: "Show the rules that a sidecar uses, or a version of a control",
				run: showVersion, example: "show\nshow @3 --domain shop\nshow @",
				long: `show prints the limits, blocks and allows that a sidecar uses, with where they are written. @3
is version 3 of a control with its rule file, and @ the version that is in force. export prints the rule file alone.`},
			{use: "publish FILE|FOLDER|@VERSION...",
				short: "Publish rule files, each as a version of its domain, or a version that is kept",
				run:   publishRules,
				flags: addPublish, files: true,
				example: "publish examples/rules/shop.yaml --note \"more for partners\"\n" +
					"publish examples/rules/shop.yaml --draft\npublish @4 --domain shop",
				long: `publish sends rule files, and those of folders, to a control, which compiles each as a sidecar
does and keeps it as a version of its domain. It prints what changes for whom, asks on a terminal, and puts the
version into force. A pipeline cannot be asked: there --draft keeps the version and prints the difference, and, once
that is reviewed, publish @VERSION puts it into force. --yes does both without a review. A file that is in force
already is left out. All files are checked first: where one does not compile, nothing is published. Where another
publishes meanwhile, it fails.`},
			{use: "canary", short: "Compare what sidecars refuse with a canary and without it", run: showCanary,
				example: "canary --domain shop",
				long: `canary shows how many sidecars use each of the two versions, and what they have decided in the
domain since then, by their cards. Publish the version without --canary to end it, or roll back.`},
			{use: "export [@VERSION]", short: "Print or write rule files as they were published", run: exportRules,
				flags:   addExport,
				example: "export --domain shop >shop.yaml\nexport --to rules/",
				long: `export prints the rule file of the version that is in force, or of the one that is named, byte
for byte. With --to it writes the file of each domain that is in force into a folder, named after the domain; publish
reads them again.`},
			{use: "rollback [@VERSION]", short: "Publish an old version again", run: rollbackRules, flags: addRollback,
				example: "rollback --note \"too few\"\nrollback @3 --domain shop",
				long: `rollback puts the version into force that is named, else the last other one, or it ends a
canary. It prints what changes for whom, and asks on a terminal; a pipeline names the version, or has --yes. Right after
a rollback it wants the version by name: without one, two people who both roll back would undo each other's work.`},
			{use: "unpublish", short: "Take the rules of a domain out of force", run: unpublishRules,
				flags:   addRevision,
				example: "unpublish --domain shop",
				long: `unpublish takes what is published for a domain out of force. Sidecars use their rule files
alone, if they have any. Versions stay, and can be published again.`},
		},
	}
}

// newRulesGroup is the noun with the commands that work with files.
func newRulesGroup() *cobra.Command {
	cmd := newRules().command()
	diff := newDiff()
	diff.Use, diff.Args = "diff [OLD] [NEW]", between(0, 2)
	cmd.AddCommand(newLint(), newTest(), diff, newReplay())
	return cmd
}

func addPublish(cmd *cobra.Command) {
	addNote(cmd)
	cmd.Flags().Lookup("if-match").Usage = "number of the publication that has to be in force; 0: the one that is"
	cmd.Flags().Bool("draft", false, "keep the version, print the difference, and do not publish it")
	cmd.Flags().String("canary", "", "share of the sidecars that use it, such as 10%; without it all do")
	addYes(cmd)
}

func addRollback(cmd *cobra.Command) {
	addNote(cmd)
	addYes(cmd)
}

func addYes(cmd *cobra.Command) { cmd.Flags().BoolP("yes", "y", false, "do not ask") }

func addExport(cmd *cobra.Command) {
	cmd.Flags().String("to", "", "write files into this folder, which is made where it is missing")
}

func addNote(cmd *cobra.Command) {
	addRevision(cmd)
	cmd.Flags().String("note", "", "why, for the audit")
}

func listRules(s *session, _ []string) {
	if s.domain == "" {
		rows := s.domains()
		s.print(object{"domains": rows}, func() {
			s.table(rows, columns(`DOMAIN domain | VERSION version | PUBLICATION publication | BY published_by |
				AT published_at:when | NOTE note`))
		})
		return
	}
	rows := s.pages(s.path(), url.Values{})
	s.doubt(len(rows) == 0)
	now := s.inForce(s.domain).object
	s.print(object{"in_force": whole(now, "version"), "versions": rows}, func() {
		for _, row := range rows {
			row["in_force"] = text(row, "version") == text(now, "version")
		}
		s.table(rows, s.noun.columns)
	})
}

// inForce is the newest publication of a domain.
func (s *session) inForce(domain string) *answer { return s.look(below(domain, "published")) }

func showVersion(s *session, args []string) {
	if len(args) == 0 {
		s.turn(sidecarAPI)
		s.showRules()
		return
	}
	v := s.version(args)
	s.print(v, func() {
		s.facts(v, s.noun.facts)
		s.line("\n%s", strings.TrimSuffix(plainLines(text(v, "text")), "\n"))
	})
}

// version reads the version that the arguments name, or the one that is in force.
func (s *session) version(args []string) object {
	s.below() // finds the domain
	if len(args) > 0 && args[0] != "@" {
		return s.textOf(s.domain, s.versionNumber(args[0]))
	}
	n := whole(s.inForce(s.domain).object, "version")
	if n == 0 {
		s.fail(refused("nothing is in force in the domain %q", s.domain))
	}
	return s.textOf(s.domain, n)
}

// textOf is a version with its rule file.
func (s *session) textOf(domain string, n int64) object {
	return s.find(below(domain, "versions", strconv.FormatInt(n, 10)), nil, "there is no version %d of the domain %q",
		n, domain)
}

func (s *session) versionNumber(text string) int64 {
	digits, marked := strings.CutPrefix(text, "@")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 1 || !marked {
		s.fail(fmt.Errorf("the version is %q and must be @ and a number from 1: spillway rules list shows them", text))
	}
	return n
}

func exportRules(s *session, args []string) {
	folder := s.flag("to")
	switch {
	case folder == "":
		v := s.version(args)
		if s.err == nil && isTerminal(s.raw) {
			s.line("%s", text(v, "text"))
		} else if s.err == nil {
			_, s.err = fmt.Fprint(s.raw, text(v, "text"))
		}
	case len(args) > 0 && s.domain == "":
		s.fail(errors.New("a version is of one domain: --domain is missing"))
	case s.domain != "":
		s.export(folder, s.version(args))
	default:
		for _, p := range s.domains() {
			if n := whole(p, "version"); n > 0 {
				s.export(folder, s.textOf(text(p, "domain"), n))
			}
		}
	}
}

// export writes the rule file of a version into a folder.
func (s *session) export(folder string, v object) {
	if s.failed(os.MkdirAll(folder, 0o755)) {
		return
	}
	domain := text(v, "domain")
	name := filepath.Join(folder, url.PathEscape(domain)+".yaml")
	if !s.failed(os.WriteFile(name, []byte(text(v, "text")), 0o644)) {
		fmt.Fprintf(s.cmd.ErrOrStderr(), "%s: version %d of %s\n", name, whole(v, "version"), plain(domain))
	}
}

// diffVersions compares the versions of a control that the arguments name.
func diffVersions(cmd *cobra.Command, args []string) error {
	s, err := start(cmd, controlAPI)
	if err != nil {
		return err
	}
	s.below() // finds the domain
	from, to := s.versionPair(args)
	diff := s.diff(s.domain, from, to)
	if s.err != nil {
		return s.err
	}
	return s.difference(diff)
}

// diff is what a change from a version to another means.
func (s *session) diff(domain string, from, to int64) *rulediff.Diff {
	params := url.Values{"from": {strconv.FormatInt(from, 10)}, "to": {strconv.FormatInt(to, 10)}}
	a := s.ask(http.MethodGet, below(domain, "diff"), nil, params)
	if missing(s.err) {
		s.err = refused("the domain %q has no version %d or no version %d", domain, from, to)
	}
	diff := &rulediff.Diff{}
	if s.err == nil {
		s.err = json.Unmarshal(a.document, diff)
	}
	return diff
}

// versionPair is the versions that the arguments name: two, one to compare with what is in force, or the last two.
func (s *session) versionPair(args []string) (from, to int64) {
	if len(args) == 2 {
		return s.versionNumber(args[0]), s.versionNumber(args[1])
	}
	before, now := lastTwo(s.publications())
	if len(args) == 1 && now > 0 {
		return now, s.versionNumber(args[0])
	}
	if before == 0 || now == 0 {
		s.fail(refused("the domain %q has not had two versions in force: name two versions", s.domain))
	}
	return before, now
}

// putInForce publishes a version in place of what was read.
func (s *session) putInForce(domain string, version int64, now *answer) object {
	body := object{"version": version}
	if note := s.flag("note"); note != "" {
		body["note"] = note
	}
	if s.given("canary") {
		share, err := readWhole(strings.TrimSuffix(s.flag("canary"), "%"))
		s.fail(err)
		body["canary"] = share
	}
	a := s.ask(http.MethodPut, below(domain, "published"), body, nil, s.condition(now)...)
	if missing(s.err) {
		s.err = refused("there is no version %d of the domain %q", version, domain)
	}
	return s.forced(a.object)
}

func unpublishRules(s *session, _ []string) {
	if s.domain == "" {
		s.fail(errors.New("--domain is missing: name the domain that loses its rules"))
	}
	now := s.inForce(s.domain)
	if now.object == nil {
		s.fail(refused("nothing is in force in the domain %q", s.domain))
	}
	s.showInForce(s.forced(s.ask(http.MethodDelete, below(s.domain, "published"), nil, nil,
		s.condition(now)...).object))
}

// showCanary compares the two versions of a canary.
func showCanary(s *session, _ []string) {
	o := s.get(s.below("canary"), nil)
	rows := objects(o, "versions")
	if s.err == nil && len(rows) == 0 {
		s.fail(refused("no canary runs in the domain %q", s.domain))
	}
	s.print(o, func() {
		s.line("%s: version %d is a canary on %d %% of the sidecars, by their names", plain(s.domain),
			whole(o, "publication.canary"), whole(o, "publication.share"))
		s.table(rows, columns(`VERSION version | CANARY canary | SIDECARS sidecars | REQUESTS requests |
			REFUSED refused | SHARE :refusedShare`))
	})
}

// refusedShare is which part of the requests was refused.
func refusedShare(t object) string {
	all := whole(t, "requests")
	if all == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(whole(t, "refused"))/float64(all))
}

// showInForce prints what is in force after a change.
func (s *session) showInForce(p object) {
	if s.err == nil {
		s.err = s.value(p, func() { s.line("%s", inForceWords(p)) })
	}
}

func inForceWords(p object) string {
	version := "no version"
	if v := whole(p, "version"); v > 0 {
		version = fmt.Sprint("version ", v)
	}
	if line := waits(p); line != "" {
		return fmt.Sprintf("%s: %s (publication %d) is %s", plain(text(p, "domain")), version, whole(p,
			"publication"), line)
	}
	return fmt.Sprintf("%s: %s is in force (publication %d)", plain(text(p, "domain")), version, whole(p,
		"publication"))
}
