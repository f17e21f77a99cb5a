package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/rulediff"
)

func newRules() *noun {
	return &noun{
		name: "rules", one: "rule", about: "Rules: in files, at a sidecar, and as versions that a control publishes",
		api: controlAPI, path: "versions", items: "versions", key: "version", mark: "@", next: []string{"before=version"},
		columns: []column{
			{"VERSION", "version", nil, 0}, {"IN FORCE", "in_force", nil, state}, {"RULES", "rules", nil, 0},
			{"BY", "created_by", nil, 0}, {"AT", "created_at", when, 0}, {"NOTE", "note", nil, 0},
		},
		facts: []column{
			{"DOMAIN", "domain", nil, 0}, {"VERSION", "version", nil, 0}, {"RULES", "rules", nil, 0}, {"BY", "created_by", nil, 0},
			{"AT", "created_at", when, 0}, {"NOTE", "note", nil, 0}, {"SHA256", "hash", nil, 0},
		},
		verbs: []verb{
			{use: "list", short: "List what is in force in each domain, or with --domain its versions", run: listRules,
				example: "list\nlist --domain shop"},
			{use: "show [@VERSION]", short: "Show the rules that a sidecar uses, or a version of a control", run: showVersion,
				example: "show\nshow @3 --domain shop\nshow @",
				long: `show prints the limits, blocks and allows that a sidecar uses, with where they are written. @3 is version 3 of a
control with its rule file, and @ the version that is in force. export prints the rule file alone.`},
			{use: "publish FILE|FOLDER...", short: "Publish rule files: each becomes a version of its domain", run: publishRules,
				flags: addPublish, files: true, example: "publish examples/rules/shop.yaml --note \"more for partners\"",
				long: `publish sends rule files, and those of folders, to a control, which compiles each as a sidecar does and keeps it as
a version of its domain. It prints what changes for whom, asks on a terminal, and puts the version into force; elsewhere
it needs --yes. A file that is in force already is left out. Of several files all are checked first: where one does not
compile, nothing is published. Where another publishes meanwhile, the command fails.`},
			{use: "export [@VERSION]", short: "Print or write rule files as they were published", run: exportRules, flags: addExport,
				example: "export --domain shop >shop.yaml\nexport --to rules/",
				long: `export prints the rule file of the version that is in force, or of the one that is named, byte for byte. With --to it
writes the file of each domain that is in force into a folder, named after the domain; publish reads them again.`},
			{use: "rollback [@VERSION]", short: "Publish an old version again", run: rollbackRules, flags: addRollback,
				example: "rollback --note \"too few\"\nrollback @3 --domain shop",
				long:    "rollback puts the version into force that is named, else the last other one that was in force."},
			{use: "unpublish", short: "Take the rules of a domain out of force", run: unpublishRules, flags: addRevision,
				example: "unpublish --domain shop",
				long: `unpublish takes what is published for a domain out of force. Sidecars use their rule files alone, if they have any.
Versions stay, and can be published again.`},
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
	addRollback(cmd)
	cmd.Flags().Lookup("if-match").Usage = "number of the publication that has to be in force; 0: the one that is"
	cmd.Flags().Bool("draft", false, "keep the version, and do not publish it")
	cmd.Flags().BoolP("yes", "y", false, "do not ask")
}

func addExport(cmd *cobra.Command) {
	cmd.Flags().String("to", "", "write files into this folder, which is made where it is missing")
}

func addRollback(cmd *cobra.Command) {
	addRevision(cmd)
	cmd.Flags().String("note", "", "why, for the audit")
}

func listRules(s *session, _ []string) error {
	if s.domain == "" {
		rows, err := s.domains()
		if err != nil {
			return err
		}
		return s.list("domains", rows, []column{
			{"DOMAIN", "domain", nil, 0}, {"VERSION", "version", nil, 0}, {"PUBLICATION", "publication", nil, 0},
			{"BY", "published_by", nil, 0}, {"AT", "published_at", when, 0}, {"NOTE", "note", nil, 0},
		})
	}
	rows, err := s.pages(below(s.domain, "versions"), url.Values{})
	if err != nil {
		return err
	}
	now, _, err := s.inForce(s.domain)
	if err != nil {
		return err
	}
	view := object{"in_force": whole(now, "version"), "versions": rows}
	return s.value(view, func() error {
		for _, row := range rows {
			row["in_force"] = text(row, "version") == text(now, "version")
		}
		return s.table(rows, s.noun.columns)
	})
}

// inForce is the newest publication of a domain, empty where there is none.
func (s *session) inForce(domain string) (object, *answer, error) {
	a, err := s.look(below(domain, "published"))
	if err != nil {
		return nil, nil, err
	}
	o, err := a.object()
	return o, a, err
}

func showVersion(s *session, args []string) error {
	if len(args) == 0 {
		sidecar, err := s.asking(sidecarAPI)
		if err != nil {
			return err
		}
		return showRules(sidecar)
	}
	v, err := s.version(args)
	if err != nil {
		return err
	}
	if s.data() {
		return s.value(v, nil)
	}
	err = s.facts(v, s.noun.facts)
	s.line("\n%s", strings.TrimSuffix(plainLines(text(v, "text")), "\n"))
	return err
}

// version reads the version that the arguments name, or the one that is in force.
func (s *session) version(args []string) (object, error) {
	_, err := s.inDomain()
	if err != nil {
		return nil, err
	}
	if len(args) > 0 && args[0] != "@" {
		n, err := versionNumber(args[0])
		if err != nil {
			return nil, err
		}
		return s.textOf(s.domain, n)
	}
	now, _, err := s.inForce(s.domain)
	if err == nil && whole(now, "version") == 0 {
		err = refused("nothing is in force in the domain %q", s.domain)
	}
	if err != nil {
		return nil, err
	}
	return s.textOf(s.domain, whole(now, "version"))
}

// textOf is a version with its rule file.
func (s *session) textOf(domain string, version int64) (object, error) {
	o, err := s.object(below(domain, "versions", strconv.FormatInt(version, 10)), nil)
	if missing(err) {
		err = refused("there is no version %d of the domain %q", version, domain)
	}
	return o, err
}

func versionNumber(text string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimPrefix(text, "@"), 10, 64)
	if err != nil || n < 1 || text[0] != '@' {
		return 0, fmt.Errorf("the version is %q and must be @ and a number from 1: spillway rules list shows them", text)
	}
	return n, nil
}

func exportRules(s *session, args []string) error {
	folder := s.flag("to")
	if folder == "" {
		v, err := s.version(args)
		if err != nil {
			return err
		}
		out := s.raw
		if isTerminal(out) {
			out = s.out
		}
		_, err = fmt.Fprint(out, text(v, "text"))
		return err
	}
	if len(args) > 0 && s.domain == "" {
		return errors.New("a version is of one domain: --domain is missing")
	}
	err := os.MkdirAll(folder, 0o755)
	if err != nil {
		return err
	}
	if s.domain != "" {
		v, err := s.version(args)
		if err != nil {
			return err
		}
		return s.export(folder, v)
	}
	all, err := s.domains()
	for _, p := range all {
		if whole(p, "version") == 0 || err != nil {
			continue
		}
		var v object
		v, err = s.textOf(text(p, "domain"), whole(p, "version"))
		if err == nil {
			err = s.export(folder, v)
		}
	}
	return err
}

// export writes the rule file of a version into a folder.
func (s *session) export(folder string, v object) error {
	domain := text(v, "domain")
	name := filepath.Join(folder, url.PathEscape(domain)+".yaml")
	err := os.WriteFile(name, []byte(text(v, "text")), 0o644)
	if err == nil {
		fmt.Fprintf(s.cmd.ErrOrStderr(), "%s: version %d of %s\n", name, whole(v, "version"), plain(domain))
	}
	return err
}

// diffVersions compares the versions of a control that the arguments name.
func diffVersions(cmd *cobra.Command, args []string) error {
	s, err := start(cmd, controlAPI)
	if err != nil {
		return err
	}
	_, err = s.inDomain()
	if err != nil {
		return err
	}
	from, to, err := s.versionPair(args)
	if err != nil {
		return err
	}
	diff, err := s.diff(s.domain, from, to)
	if err != nil {
		return err
	}
	return s.difference(diff)
}

// diff is what a change from a version to another means.
func (s *session) diff(domain string, from, to int64) (*rulediff.Diff, error) {
	params := url.Values{"from": {strconv.FormatInt(from, 10)}, "to": {strconv.FormatInt(to, 10)}}
	a, err := s.get(below(domain, "diff"), params)
	if missing(err) {
		err = refused("the domain %q has no version %d or no version %d", domain, from, to)
	}
	if err != nil {
		return nil, err
	}
	diff := &rulediff.Diff{}
	return diff, a.read(diff)
}

// versionPair is the versions that the arguments name: two, one to compare with what is in force, or the last two.
func (s *session) versionPair(args []string) (from, to int64, err error) {
	var named []int64
	for _, text := range args {
		n, err := versionNumber(text)
		if err != nil {
			return 0, 0, err
		}
		named = append(named, n)
	}
	if len(named) == 2 {
		return named[0], named[1], nil
	}
	before, now, err := s.lastTwo()
	switch {
	case err != nil:
		return 0, 0, err
	case len(named) == 1 && now > 0:
		return now, named[0], nil
	case now == 0 || before == 0:
		return 0, 0, refused("the domain %q has not had two versions in force: name two versions", s.domain)
	}
	return before, now, nil
}

// lastTwo is the version that is in force, 0 for none, and the last other one that was.
func (s *session) lastTwo() (before, now int64, err error) {
	o, err := s.object(below(s.domain, "publications"), url.Values{"limit": {strconv.Itoa(pageOf)}})
	all := objects(o, "publications")
	if err != nil || len(all) == 0 {
		return 0, 0, err
	}
	now = whole(all[0], "version")
	for _, p := range all {
		if v := whole(p, "version"); v != now && v != 0 {
			return v, now, nil
		}
	}
	return 0, now, nil
}

func rollbackRules(s *session, args []string) error {
	_, err := s.inDomain()
	if err != nil {
		return err
	}
	_, now, err := s.inForce(s.domain)
	if err != nil {
		return err
	}
	var to int64
	if len(args) > 0 {
		to, err = versionNumber(args[0])
	} else {
		to, _, err = s.lastTwo()
	}
	if err == nil && to == 0 {
		err = refused("the domain %q has had no other version in force: name one of spillway rules list", s.domain)
	}
	if err != nil {
		return err
	}
	p, err := s.putInForce(s.domain, to, now)
	if err != nil {
		return err
	}
	return s.publication(p)
}

// putInForce publishes a version in place of what was read.
func (s *session) putInForce(domain string, version int64, now *answer) (object, error) {
	body := object{"version": version}
	if note := s.flag("note"); note != "" {
		body["note"] = note
	}
	a, err := s.ask(http.MethodPut, below(domain, "published"), body, nil, s.condition(now)...)
	if missing(err) {
		err = refused("there is no version %d of the domain %q", version, domain)
	}
	if err != nil {
		return nil, err
	}
	return a.object()
}

// publication prints what is in force after a change.
func (s *session) publication(p object) error {
	return s.value(p, func() error {
		s.line("%s", inForceWords(p))
		return nil
	})
}

func inForceWords(p object) string {
	version := "no version"
	if v := whole(p, "version"); v > 0 {
		version = fmt.Sprint("version ", v)
	}
	return fmt.Sprintf("%s: %s is in force (publication %d)", plain(text(p, "domain")), version, whole(p, "publication"))
}

func unpublishRules(s *session, _ []string) error {
	if s.domain == "" {
		return errors.New("--domain is missing: name the domain that loses its rules")
	}
	_, now, err := s.inForce(s.domain)
	if err == nil && now.document == nil {
		err = refused("nothing is in force in the domain %q", s.domain)
	}
	if err != nil {
		return err
	}
	a, err := s.ask(http.MethodDelete, below(s.domain, "published"), nil, nil, s.condition(now)...)
	var p object
	if err == nil {
		p, err = a.object()
	}
	if err != nil {
		return err
	}
	return s.publication(p)
}
