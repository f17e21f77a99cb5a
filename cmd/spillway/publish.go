package main

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/spillway-mesh/spillway/rules"
	"github.com/spillway-mesh/spillway/whatif"
)

// ruleText is a rule file and the domain that it is about.
type ruleText struct{ path, domain, text string }

// readRules reads a rule file.
func readRules(path string) (ruleText, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return ruleText{}, err
	}
	domain, problems := rules.Decode(path, text)
	if domain.Name == "" {
		return ruleText{}, fmt.Errorf("%s names no domain:\n%s", path, rules.FormatProblems(problems))
	}
	return ruleText{path, domain.Name, string(text)}, nil
}

// ruleTexts reads rule files. Where there are several, it fails if one of them could not be published.
func ruleTexts(paths []string) ([]ruleText, error) {
	var names []string
	for _, path := range paths {
		files, err := yamlFiles(path)
		if err != nil {
			return nil, err
		}
		names = append(names, files...)
	}
	if len(names) > 1 {
		_, err := whatif.Read(rules.FilesConfig{}, names...)
		if err != nil {
			return nil, err
		}
	}
	var all []ruleText
	var wrong []rules.Problem
	for _, name := range names {
		file, err := readRules(name)
		if err != nil {
			return nil, err
		}
		all = append(all, file)
		load := rules.CheckPublished(rules.FilesConfig{}, rules.Document{
			Domain: file.domain, Hash: rules.HashText(file.text), Text: file.text, Name: file.path,
		})
		if load.Rejected() {
			wrong = append(wrong, load.Problems...)
		}
	}
	if len(wrong) > 0 {
		return nil, &whatif.Unloadable{Load: rules.Load{Problems: wrong}}
	}
	return all, nil
}

// publishRules publishes files one after the other, and prints what became of them, also where one fails; or it
// publishes a version that is kept already.
func publishRules(s *session, args []string) {
	if strings.HasPrefix(args[0], s.noun.mark) {
		s.publishVersion(args)
		return
	}
	if !s.asks() && !s.is("yes") && !s.is("draft") {
		s.fail(errors.New("without a terminal the command cannot ask: --draft keeps the file as a version and prints " +
			"the difference, and rules publish @VERSION publishes it; --yes publishes without a review"))
		return
	}
	files, err := ruleTexts(args)
	if s.failed(err) {
		return
	}
	all := []object{}
	for _, file := range files {
		done := s.publishFile(file)
		if s.err != nil {
			s.err = fmt.Errorf("%s: %w", file.path, s.err)
			break
		}
		all = append(all, done)
	}
	s.showPublished(all)
}

// asks reports whether the command can ask the one who runs it.
func (s *session) asks() bool {
	return isTerminal(s.cmd.InOrStdin()) && isTerminal(s.cmd.ErrOrStderr())
}

// showPublished prints what became of files or versions.
func (s *session) showPublished(all []object) {
	s.fail(s.value(all, func() {
		for _, done := range all {
			s.line("%s", publishedWords(done))
		}
	}))
}

func publishedWords(done object) string {
	v := inner(done, "version")
	version := fmt.Sprintf("%s: version %d is ", plain(text(v, "domain")), whole(v, "version"))
	switch {
	case isTrue(done, "unchanged"):
		return version + "in force already"
	case whole(done, "publication.canary") > 0:
		line := waits(inner(done, "publication"))
		if line != "" {
			line = "; " + line
		}
		return version + fmt.Sprintf("a canary on %d %% of the sidecars (publication %d): rules canary compares%s",
			whole(done, "publication.share"), whole(done, "publication.publication"), line)
	case inner(done, "publication") == nil:
		return version + fmt.Sprintf("kept, and not published: spillway rules publish @%d --domain %s publishes it",
			whole(v, "version"), plain(text(v, "domain")))
	}
	return inForceWords(inner(done, "publication"))
}

// publishVersion puts a version into force that was kept. Without a terminal its number is the proof of a review.
func (s *session) publishVersion(args []string) {
	if len(args) > 1 || s.is("draft") {
		s.fail(errors.New("a version is published alone, and is kept already: leave out other arguments and --draft"))
	}
	s.below() // finds the domain
	to, now := s.versionNumber(args[0]), s.inForce(s.domain)
	v := s.textOf(s.domain, to)
	delete(v, "text")
	done := object{"version": v, "publication": nil, "unchanged": whole(now.object, "version") == to &&
		whole(now.object, "canary") == 0}
	from := whole(now.object, "version")
	if from == to {
		from = whole(now.object, "canary") // what the end of a canary changes
	}
	if s.err == nil && !isTrue(done, "unchanged") && s.confirmed(s.domain, from, to) {
		done["publication"] = s.putInForce(s.domain, to, now)
	}
	if s.err == nil {
		s.showPublished([]object{done})
	}
}

// publishFile keeps a file as a version and, unless it is a draft, puts it into force.
func (s *session) publishFile(file ruleText) object {
	now := s.inForce(file.domain)
	from := whole(now.object, "version")
	if from > 0 && whole(now.object, "canary") == 0 {
		v := s.textOf(file.domain, from)
		if text(v, "text") == file.text {
			delete(v, "text")
			return object{"file": file.path, "version": v, "publication": nil, "unchanged": true}
		}
	}
	body := object{"text": file.text, "publish": false}
	if note := s.flag("note"); note != "" {
		body["note"] = note
	}
	done := s.ask(http.MethodPost, below(file.domain, "versions"), body, nil).object
	if s.err != nil {
		return nil
	}
	done["file"], done["unchanged"] = file.path, false
	to := whole(done, "version.version")
	if s.confirmed(file.domain, from, to) {
		done["publication"] = s.putInForce(file.domain, to, now)
	}
	return done
}

// confirmed prints what a publication changes for whom, and reports whether it is wanted.
func (s *session) confirmed(domain string, from, to int64) bool {
	out := cleaned{to: s.cmd.ErrOrStderr()}
	if from > 0 && s.data() {
		s.diff(domain, from, to).WriteText(out)
	} else if from > 0 {
		s.diff(domain, from, to).WriteText(s.out)
	}
	switch {
	case s.err != nil || s.is("draft"):
		return false
	case s.is("yes") || !s.asks():
		return true
	}
	fmt.Fprintf(out, "publish version %d of %s? [y/N] ", to, plain(domain))
	reply, err := bufio.NewReader(s.cmd.InOrStdin()).ReadString('\n')
	s.fail(err)
	return strings.EqualFold(strings.TrimSpace(reply), "y")
}
