package main

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/rules"
	"github.com/spillway-mesh/spillway/trial"
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
	names, err := ruleFileNames(paths)
	if err == nil && len(names) > 1 {
		_, err = trial.Read(rules.FilesConfig{}, names...)
	}
	if err != nil {
		return nil, err
	}
	var all []ruleText
	var wrong []descriptors.Problem
	for _, name := range names {
		file, err := readRules(name)
		if err != nil {
			return nil, err
		}
		all = append(all, file)
		if len(names) == 1 {
			break
		}
		load := rules.CheckPublished(rules.FilesConfig{}, rules.Document{
			Domain: file.domain, Hash: rules.HashText(file.text), Text: file.text,
		})
		if load.Rejected() {
			wrong = append(wrong, load.Problems...)
		}
	}
	if len(wrong) > 0 {
		return nil, &trial.Unloadable{Load: rules.Load{Problems: wrong}}
	}
	return all, nil
}

// ruleFileNames are the files of paths, of folders those with rules.
func ruleFileNames(paths []string) (all []string, err error) {
	for _, path := range paths {
		entries, err := os.ReadDir(path)
		if err != nil { // it is a file, or reading it shows what is wrong
			all = append(all, path)
			continue
		}
		before := len(all)
		for _, e := range entries {
			if !e.IsDir() && yamlFile(e.Name()) {
				all = append(all, filepath.Join(path, e.Name()))
			}
		}
		if len(all) == before {
			return nil, fmt.Errorf("there is no rule file in %s", path)
		}
	}
	return all, nil
}

// publishRules publishes files one after the other, and prints what became of them, also where one fails.
func publishRules(s *session, args []string) error {
	asks := isTerminal(s.cmd.InOrStdin()) && isTerminal(s.cmd.ErrOrStderr())
	if !asks && !s.is("yes") && !s.is("draft") {
		return errors.New("--yes is missing: without a terminal the command cannot ask whether to publish; --draft only keeps")
	}
	files, err := ruleTexts(args)
	if err != nil {
		return err
	}
	all := []object{}
	var failed error
	for _, file := range files {
		done, err := s.publishFile(file)
		if err != nil {
			failed = fmt.Errorf("%s: %w", file.path, err)
			break
		}
		done["file"] = file.path
		all = append(all, done)
	}
	return errors.Join(s.value(all, func() error {
		for _, done := range all {
			s.showPublished(done)
		}
		return nil
	}), failed)
}

func (s *session) showPublished(done object) {
	v := inner(done, "version")
	switch {
	case isTrue(done, "unchanged"):
		s.line("%s: version %d is in force already", plain(text(v, "domain")), whole(v, "version"))
	case inner(done, "publication") == nil:
		s.line("%s: version %d is kept, and not published", plain(text(v, "domain")), whole(v, "version"))
	default:
		s.line("%s", inForceWords(inner(done, "publication")))
	}
}

// publishFile keeps a file as a version and, unless it is a draft, puts it into force.
func (s *session) publishFile(file ruleText) (object, error) {
	current, now, err := s.inForce(file.domain)
	if err != nil {
		return nil, err
	}
	from := whole(current, "version")
	if from > 0 {
		v, err := s.textOf(file.domain, from)
		if err != nil {
			return nil, err
		}
		if text(v, "text") == file.text {
			delete(v, "text")
			return object{"version": v, "publication": nil, "unchanged": true}, nil
		}
	}
	body := object{"text": file.text, "publish": false}
	if note := s.flag("note"); note != "" {
		body["note"] = note
	}
	a, err := s.ask(http.MethodPost, below(file.domain, "versions"), body, nil)
	if err != nil {
		return nil, err
	}
	done, err := a.object()
	if err != nil {
		return nil, err
	}
	done["unchanged"] = false
	to := whole(done, "version.version")
	wanted, err := s.confirmed(file.domain, from, to)
	if err != nil || !wanted {
		return done, err
	}
	done["publication"], err = s.putInForce(file.domain, to, now)
	return done, err
}

// confirmed prints what a publication changes for whom, and reports whether it is wanted.
func (s *session) confirmed(domain string, from, to int64) (bool, error) {
	if s.is("draft") {
		return false, nil
	}
	out := cleaned{s.cmd.ErrOrStderr()}
	if from > 0 {
		diff, err := s.diff(domain, from, to)
		if err != nil {
			return false, err
		}
		diff.WriteText(out)
	}
	if s.is("yes") {
		return true, nil
	}
	fmt.Fprintf(out, "publish version %d of %s? [y/N] ", to, plain(domain))
	reply, err := bufio.NewReader(s.cmd.InOrStdin()).ReadString('\n')
	if err != nil {
		return false, fmt.Errorf("read the reply: %w", err)
	}
	return strings.EqualFold(strings.TrimSpace(reply), "y"), nil
}
