package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/rules"
	"github.com/spillway-mesh/spillway/whatif/rulediff"
	"github.com/spillway-mesh/spillway/whatif/trial"
)

func newDiff() *cobra.Command {
	merge := false
	cmd := &cobra.Command{
		Use: "diff OLD NEW", Short: "Show what a change of rules means",
		Long: `diff compares two rule sets, each a file or a folder. It lists the rules, nodes of trees and accounts that are added, removed, tightened, loosened,
shadowed (counted and no longer enforced), enforced again, or displaced (another rule now always wins over it), and who would be treated differently: it
matches requests of every client and endpoint that the rules name, and of any other, as a sidecar does.

It exits with 1 if there is a difference.`,
		Example: "  spillway diff rules/ new-rules/\n  git show main:rules/shop.yaml >old.yaml && spillway diff old.yaml rules/shop.yaml",
		Args:    between(2, 2), ValidArgsFunction: ruleFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			format, err := outputOf(cmd)
			if err != nil {
				return err
			}
			old, oldErr := trial.Read(rules.FilesConfig{MergeDomains: merge}, args[0])
			new, newErr := trial.Read(rules.FilesConfig{MergeDomains: merge}, args[1])
			err = errors.Join(oldErr, newErr)
			if err != nil {
				return err
			}
			diff, err := rulediff.Compare(cmd.Context(), old, new)
			if err != nil {
				return err
			}
			if format == "json" {
				err = printJSON(cmd.OutOrStdout(), diff)
			} else {
				diff.WriteText(cmd.OutOrStdout())
			}
			if err == nil && !diff.Empty() {
				err = exit(exitFound)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&merge, "merge-domains", false, "several files may add to one domain, as with MERGE_DOMAIN_CONFIG")
	return cmd
}
