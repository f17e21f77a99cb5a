package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/control/api"
	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/rules"
	"github.com/spillway-mesh/spillway/whatif/trial"
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

// published is what became of a rule file.
type published struct {
	File        string                `json:"file"`
	Version     *database.Version     `json:"version"`
	Publication *database.Publication `json:"publication"` // null: it was in force already, or it was kept as a draft
	Unchanged   bool                  `json:"unchanged"`
}

func showPublished(w io.Writer, all []published) {
	for _, p := range all {
		switch {
		case p.Unchanged:
			fmt.Fprintf(w, "%s: version %d is in force already\n", plain(p.Version.Domain), p.Version.Version)
		case p.Publication == nil:
			fmt.Fprintf(w, "%s: version %d is kept, and not published\n", plain(p.Version.Domain), p.Version.Version)
		default:
			fmt.Fprintf(w, "%s: version %d is in force (publication %d)\n", plain(p.Version.Domain), p.Version.Version, p.Publication.Publication)
		}
	}
}

func newRulesPublish() *cobra.Command {
	cmd := &cobra.Command{
		Use: "publish FILE...", Short: "Publish rule files: each becomes a version of its domain", Example: "  spillway rules publish examples/rules/shop.yaml --note \"more for partners\"",
		Args: between(1, many), ValidArgsFunction: ruleFiles,
		Long: `publish sends rule files to a control, which compiles each as a sidecar does, keeps it as a version of its domain, and puts it into force. A file that
does not compile is refused whole, with all its problems. Where another publishes meanwhile, the command fails.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var all []ruleText
			for _, path := range args {
				file, err := readRules(path)
				if err != nil {
					return err
				}
				all = append(all, file)
			}
			return publishAll(cmd, all, false)
		},
	}
	addControl(cmd)
	addLock(cmd)
	cmd.Flags().Lookup("if-match").Usage = "number of the publication that has to be in force; 0: the one that is"
	cmd.Flags().String("note", "", "why, for the audit")
	cmd.Flags().Bool("draft", false, "keep the version, and do not publish it")
	must(cmd.Flags().MarkHidden("domain")) // the file names it
	return cmd
}

// publishAll publishes files one after the other, and prints what became of them, also where one fails.
func publishAll(cmd *cobra.Command, files []ruleText, skip bool) error {
	var all []published
	var failed error
	for _, file := range files {
		p, err := publishFile(cmd, file, skip)
		if err != nil {
			failed = fmt.Errorf("%s: %w", file.path, err)
			break
		}
		all = append(all, p)
	}
	return errors.Join(put(cmd, all, showPublished), failed)
}

// publishFile sends one file, unless it is to be skipped where it is in force already.
func publishFile(cmd *cobra.Command, file ruleText, skip bool) (published, error) {
	p, now, err := inForce(cmd, file.domain)
	if err != nil {
		return published{}, err
	}
	if skip && p.Version > 0 {
		v, err := textOf(cmd, file.domain, p.Version)
		if err != nil {
			return published{}, err
		}
		if v.Text == file.text {
			return published{File: file.path, Version: &v.Version, Unchanged: true}, nil
		}
	}
	draft, _ := cmd.Flags().GetBool("draft")
	body := map[string]any{"text": file.text, "publish": !draft}
	if note := cmd.Flag("note").Value.String(); note != "" {
		body["note"] = note
	}
	got, err := askControl(cmd, http.MethodPost, place(file.domain, "versions"), body, nil, lockOf(cmd, now)...)
	if err != nil {
		return published{}, err
	}
	var added api.VersionAdded
	err = got.read(&added)
	return published{File: file.path, Version: added.Version, Publication: added.Publication}, err
}

func newRulesImport() *cobra.Command {
	cmd := &cobra.Command{
		Use: "import PATH...", Short: "Publish all rule files of folders that are not in force yet", Example: "  spillway rules import examples/rules --note \"from the repository\"",
		Args: between(1, many), ValidArgsFunction: ruleFiles,
		Long: `import takes rule files, and all rule files of folders, and publishes those that differ from
what is in force. All are checked first: where one does not compile, nothing is published.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := filesOf(args)
			if err != nil {
				return err
			}
			return publishAll(cmd, files, true)
		},
	}
	addControl(cmd)
	addLock(cmd)
	cmd.Flags().String("note", "", "why, for the audit")
	must(cmd.Flags().MarkHidden("domain")) // the files name them
	must(cmd.Flags().MarkHidden("if-match"))
	return cmd
}

// filesOf reads rule files and those of folders, and fails where one of them could not be published.
func filesOf(paths []string) ([]ruleText, error) {
	names, err := namesOf(paths)
	if err == nil {
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
		load := rules.CheckPublished(rules.FilesConfig{}, rules.Document{Domain: file.domain, Hash: rules.HashText(file.text), Text: file.text})
		if load.Rejected() {
			wrong = append(wrong, load.Problems...)
		}
		all = append(all, file)
	}
	if len(wrong) > 0 {
		return nil, &trial.Unloadable{Load: rules.Load{Problems: wrong}}
	}
	return all, nil
}

// namesOf are the files of paths, of folders those with rules.
func namesOf(paths []string) (all []string, err error) {
	for _, path := range paths {
		entries, err := os.ReadDir(path)
		if err != nil { // it is a file, or reading it says what is wrong
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

func newRulesExport() *cobra.Command {
	cmd := &cobra.Command{
		Use: "export [VERSION]", Short: "Print or write rule files as they were published", Example: "  spillway rules export --domain shop >shop.yaml\n  spillway rules export --to rules/", Args: between(0, 1),
		Long: `export prints the rule file of the version that is in force, or of the one that is named, byte for byte.
With --to it writes the file of each domain that is in force into a folder, named after the domain; import reads them
again.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if to := cmd.Flag("to").Value.String(); to != "" {
				return exportTo(cmd, to, args)
			}
			v, err := versionOf(cmd, args)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), v.Text)
			return err
		},
	}
	addControl(cmd)
	cmd.Flags().String("to", "", "write files into this folder, which is made where it is missing")
	return cmd
}

// exportTo writes the rule files of all domains in force, or of the one that is named, or a version of that one.
func exportTo(cmd *cobra.Command, folder string, args []string) error {
	only := cmd.Flag("domain").Value.String()
	if len(args) > 0 && only == "" {
		return errors.New("a version is of one domain: --domain is missing")
	}
	err := os.MkdirAll(folder, 0o755)
	if err != nil {
		return err
	}
	if only != "" {
		v, err := versionOf(cmd, args)
		if err != nil {
			return err
		}
		return exportOne(cmd, folder, only, v.Version.Version)
	}
	all, err := domainsOf(cmd)
	for _, p := range all {
		if p.Version > 0 && err == nil {
			err = exportOne(cmd, folder, p.Domain, p.Version)
		}
	}
	return err
}

// exportOne writes the rule file of a version.
func exportOne(cmd *cobra.Command, folder, domain string, version int64) error {
	v, err := textOf(cmd, domain, version)
	name := filepath.Join(folder, url.PathEscape(domain)+".yaml")
	if err == nil {
		err = os.WriteFile(name, []byte(v.Text), 0o644)
	}
	if err == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: version %d of %s\n", name, version, plain(domain))
	}
	return err
}
