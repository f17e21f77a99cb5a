package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/control/api"
	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/whatif/rulediff"
)

// newRulesOfControl makes the commands about the versions of rules that a control keeps.
func newRulesOfControl() []*cobra.Command {
	return []*cobra.Command{
		newRulesList(), newRulesShow(), newRulesPublish(), newRulesImport(), newRulesExport(), newRulesDiff(), newRulesRollback(), newRulesUnpublish(),
	}
}

func newRulesList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List what is in force, or the versions of a domain", Example: "  spillway rules list\n  spillway rules list --domain shop", Args: between(0, 0),
		Long: `It lists what is in force in each domain. With --domain it lists the versions of that domain, the newest
first.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			domain := cmd.Flag("domain").Value.String()
			if domain == "" {
				all, err := domainsOf(cmd)
				if err != nil {
					return err
				}
				return put(cmd, api.PublicationList{Domains: all}, showDomains)
			}
			return listVersions(cmd, domain)
		},
	}
	addControl(cmd)
	cmd.Flags().Lookup("domain").Usage = "list the versions of this domain"
	cmd.Flags().Int("limit", 100, "how many versions")
	return cmd
}

// versionsView is the versions of a domain, and which of them is in force.
type versionsView struct {
	InForce  int64              `json:"in_force"` // 0: none
	Versions []database.Version `json:"versions"`
}

func listVersions(cmd *cobra.Command, domain string) error {
	all, err := pages(cmd, place(domain, "versions"), url.Values{}, func(l *api.VersionList) []database.Version { return l.Versions },
		func(params url.Values, last *database.Version) {
			params.Set("before", strconv.FormatInt(last.Version, 10))
		})
	if err != nil {
		return err
	}
	now, _, err := inForce(cmd, domain)
	if err != nil {
		return err
	}
	return put(cmd, versionsView{now.Version, all}, showVersions)
}

// inForce is the newest publication of a domain; its fields are zero where there is none.
func inForce(cmd *cobra.Command, domain string) (p database.Publication, now state, err error) {
	now, err = look(cmd, place(domain, "published"))
	if err == nil && now.document != nil {
		err = now.read(&p)
	}
	return p, now, err
}

func showDomains(w io.Writer, list api.PublicationList) {
	t := newTable(w, "DOMAIN", "VERSION", "PUBLICATION", "BY", "AT", "NOTE")
	for _, p := range list.Domains {
		t.row(p.Domain, versionText(p.Version), p.Publication, p.PublishedBy, instant(p.PublishedAt), p.Note)
	}
	t.end()
}

// versionText is the number of a version that is in force.
func versionText(version int64) string {
	if version == 0 {
		return "none"
	}
	return strconv.FormatInt(version, 10)
}

func showVersions(w io.Writer, view versionsView) {
	t := newTable(w, "VERSION", "IN FORCE", "RULES", "BY", "AT", "NOTE")
	for _, v := range view.Versions {
		t.row(v.Version, map[bool]string{true: "yes"}[v.Version == view.InForce], v.Rules, v.CreatedBy, instant(v.CreatedAt), v.Note)
	}
	t.end()
}

func newRulesShow() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show [VERSION]", Short: "Show a version with its rule file", Example: "  spillway rules show 3 --domain shop", Args: between(0, 1),
		Long: "show prints a version with its rule file: the one that is in force, or the one that is named. export prints the rule file alone.",
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := versionOf(cmd, args)
			if err != nil {
				return err
			}
			return put(cmd, v, func(w io.Writer, v *database.VersionText) {
				facts(w, "domain", v.Domain, "version", v.Version, "rules", v.Rules, "by", v.CreatedBy, "at", instant(v.CreatedAt), "note", v.Note, "sha256", v.Hash)
				fmt.Fprintf(w, "\n%s", plainLines(v.Text))
			})
		},
	}
	addControl(cmd)
	return cmd
}

// versionOf reads the version that the arguments name, or the one that is in force.
func versionOf(cmd *cobra.Command, args []string) (*database.VersionText, error) {
	domain, err := domainOf(cmd)
	if err != nil {
		return nil, err
	}
	if len(args) > 0 {
		n, err := versionNumber(args[0])
		if err != nil {
			return nil, err
		}
		return textOf(cmd, domain, n)
	}
	now, _, err := inForce(cmd, domain)
	if err == nil && now.Version == 0 {
		err = &unreachable{fmt.Errorf("nothing is in force in the domain %q", domain)}
	}
	if err != nil {
		return nil, err
	}
	return textOf(cmd, domain, now.Version)
}

func textOf(cmd *cobra.Command, domain string, version int64) (*database.VersionText, error) {
	var v database.VersionText
	return &v, find(cmd, place(domain, "versions", strconv.FormatInt(version, 10)), fmt.Sprintf("version %d of the domain %q", version, domain), &v)
}

func versionNumber(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("the version is %q and must be a number from 1: spillway rules list shows them", text)
	}
	return n, nil
}

func newRulesDiff() *cobra.Command {
	cmd := &cobra.Command{
		Use: "diff [FROM] [TO]", Short: "Show what a change from one version to another means", Example: "  spillway rules diff 1 2 --domain shop\n  spillway rules diff 3 --domain shop", Args: between(0, 2),
		Long: `diff compares two versions as spillway diff compares two files. With one version it compares that one with what is in force, without one it compares
what was in force before with what is.

It exits with 1 if there is a difference.`,
		RunE: func(cmd *cobra.Command, args []string) error { return diffVersions(cmd, args) },
	}
	addControl(cmd)
	return cmd
}

func diffVersions(cmd *cobra.Command, args []string) error {
	domain, err := domainOf(cmd)
	if err != nil {
		return err
	}
	from, to, err := versionPair(cmd, domain, args)
	if err != nil {
		return err
	}
	now, err := askControl(cmd, http.MethodGet, place(domain, "diff"), nil, url.Values{"from": {strconv.FormatInt(from, 10)}, "to": {strconv.FormatInt(to, 10)}})
	if missing(err) {
		err = &unreachable{fmt.Errorf("the domain %q has no version %d or no version %d", domain, from, to)}
	}
	if err != nil {
		return err
	}
	var diff rulediff.Diff
	err = now.read(&diff)
	if err == nil {
		err = put(cmd, &diff, func(w io.Writer, diff *rulediff.Diff) { diff.WriteText(w) })
	}
	if err == nil && !diff.Empty() {
		err = exit(exitFound)
	}
	return err
}

// versionPair is the versions that the arguments name.
func versionPair(cmd *cobra.Command, domain string, args []string) (from, to int64, err error) {
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
	before, now, err := lastTwo(cmd, domain)
	switch {
	case err != nil:
		return 0, 0, err
	case len(named) == 1 && now > 0:
		return now, named[0], nil
	case now == 0 || before == 0:
		return 0, 0, &unreachable{fmt.Errorf("the domain %q has not had two versions in force: name two versions", domain)}
	}
	return before, now, nil
}

// lastTwo is the version that is in force, 0 for none, and the last other one that was.
func lastTwo(cmd *cobra.Command, domain string) (before, now int64, err error) {
	got, err := askControl(cmd, http.MethodGet, place(domain, "publications"), nil, url.Values{"limit": {strconv.Itoa(pageOf)}})
	if err != nil {
		return 0, 0, err
	}
	var history api.PublicationHistory
	err = got.read(&history)
	if err != nil || len(history.Publications) == 0 {
		return 0, 0, err
	}
	now = history.Publications[0].Version
	for _, p := range history.Publications {
		if p.Version != now && p.Version != 0 {
			return p.Version, now, nil
		}
	}
	return 0, now, nil
}

func newRulesRollback() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rollback [VERSION]", Short: "Publish an old version again", Example: "  spillway rules rollback --domain shop --note \"too few\"\n  spillway rules rollback 3 --domain shop", Args: between(0, 1),
		Long: "rollback puts the version into force that is named, else the last other one that was in force.",
		RunE: func(cmd *cobra.Command, args []string) error { return rollback(cmd, args) },
	}
	addControl(cmd)
	addLock(cmd)
	cmd.Flags().String("note", "", "why, for the audit")
	return cmd
}

func rollback(cmd *cobra.Command, args []string) error {
	domain, err := domainOf(cmd)
	if err != nil {
		return err
	}
	_, now, err := inForce(cmd, domain)
	if err != nil {
		return err
	}
	var to int64
	if len(args) > 0 {
		to, err = versionNumber(args[0])
	} else {
		to, _, err = lastTwo(cmd, domain)
	}
	if err == nil && to == 0 {
		err = &unreachable{fmt.Errorf("the domain %q has had no other version in force: name one of spillway rules list", domain)}
	}
	if err != nil {
		return err
	}
	body := map[string]any{"version": to}
	if note := cmd.Flag("note").Value.String(); note != "" {
		body["note"] = note
	}
	got, err := askControl(cmd, http.MethodPut, place(domain, "published"), body, nil, lockOf(cmd, now)...)
	if missing(err) {
		err = &unreachable{fmt.Errorf("there is no version %d of the domain %q", to, domain)}
	}
	return showPublication(cmd, got, err)
}

// showPublication prints what is in force after a change.
func showPublication(cmd *cobra.Command, got state, err error) error {
	var p database.Publication
	if err == nil {
		err = got.read(&p)
	}
	if err != nil {
		return err
	}
	return put(cmd, p, func(w io.Writer, p database.Publication) {
		if p.Version == 0 {
			fmt.Fprintf(w, "%s: no version is in force (publication %d)\n", plain(p.Domain), p.Publication)
			return
		}
		fmt.Fprintf(w, "%s: version %d is in force (publication %d)\n", plain(p.Domain), p.Version, p.Publication)
	})
}

func newRulesUnpublish() *cobra.Command {
	cmd := &cobra.Command{
		Use: "unpublish", Short: "Take the rules of a domain out of force", Example: "  spillway rules unpublish --domain shop", Args: between(0, 0),
		Long: "unpublish takes what is published for a domain out of force. Sidecars go by their rule files alone, if they have any. Versions stay, and can be published again.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			domain := cmd.Flag("domain").Value.String()
			if domain == "" {
				return errors.New("--domain is missing: name the domain that loses its rules")
			}
			_, now, err := inForce(cmd, domain)
			if err == nil && now.document == nil {
				err = &unreachable{fmt.Errorf("nothing is in force in the domain %q", strings.TrimSpace(domain))}
			}
			if err != nil {
				return err
			}
			got, err := askControl(cmd, http.MethodDelete, place(domain, "published"), nil, nil, lockOf(cmd, now)...)
			return showPublication(cmd, got, err)
		},
	}
	addControl(cmd)
	addLock(cmd)
	return cmd
}
