package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/rules"
	"github.com/spillway-mesh/spillway/whatif"
	"github.com/spillway-mesh/spillway/whatif/rulediff"
)

func newDiff() *cobra.Command {
	merge := false
	cmd := &cobra.Command{
		Use: "diff OLD NEW", Short: "Show what a change of rules means",
		Long: `diff compares two rule sets, each a file or a folder, or two versions of a control, as in rules diff @1
@2. It lists the rules, nodes of trees and accounts that are added, removed, tightened, loosened, shadowed (counted
and no longer enforced), enforced again, or displaced (another rule now always wins over it), and who would be treated
differently: it matches requests of every client and endpoint that the rules name, and of any other, as a sidecar
does. With one version it compares what is in force with it, rules diff without one what was in force before with what
is.`,
		Example: `  spillway diff rules/ new-rules/
  git show main:rules/shop.yaml >old.yaml && spillway diff old.yaml rules/shop.yaml
  spillway rules diff @1 @2 --domain shop`,
		Args: between(1, 2), ValidArgsFunction: ruleFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			files := 0
			for _, arg := range args {
				if !strings.HasPrefix(arg, "@") {
					files++
				}
			}
			switch {
			case files == 0:
				return diffVersions(cmd, args)
			case len(args) < 2:
				return between(2, 2)(cmd, args)
			case files < 2:
				return errors.New("a file and a version cannot be compared: rules export writes a version into a file")
			}
			return printing(func(cmd *cobra.Command, out *printer, args []string) error {
				return diffFiles(cmd.Context(), out, rules.FilesConfig{MergeDomains: merge}, args)
			})(cmd, args)
		},
	}
	addMerge(cmd, &merge)
	return cmd
}

func diffFiles(ctx context.Context, out *printer, cfg rules.FilesConfig, args []string) error {
	old, oldErr := whatif.Read(cfg, args[0])
	new, newErr := whatif.Read(cfg, args[1])
	err := errors.Join(oldErr, newErr)
	if err != nil {
		return err
	}
	diff, err := rulediff.Compare(ctx, old, new)
	if err != nil {
		return err
	}
	return out.difference(diff)
}

// difference prints a comparison. A difference is what the command looks for.
func (p *printer) difference(diff *rulediff.Diff) error {
	err := p.value(diff, func() { diff.WriteText(p.out) })
	if err == nil && !diff.Empty() {
		err = exit(exitFound)
	}
	return err
}

// ruleFiles completes names of rule files and folders.
func ruleFiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
}

// yamlFiles are the files that a path names: itself, or those in it.
func yamlFiles(path string) (names []string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	for _, e := range entries {
		name, ending := e.Name(), filepath.Ext(e.Name())
		if !e.IsDir() && name[0] != '.' && (ending == ".yaml" || ending == ".yml") {
			names = append(names, filepath.Join(path, name))
		}
	}
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%s must hold files that end with .yaml or .yml", path)
	}
	return names, err
}

// addMerge adds the flag of rule sets whose files share domains.
func addMerge(cmd *cobra.Command, merge *bool) {
	cmd.Flags().BoolVar(merge, "merge-domains", false,
		"several files may add to one domain, as with MERGE_DOMAIN_CONFIG")
}
