package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/whatif/ruletest"
)

// tested is what came of all files, for programs.
type tested struct {
	Passed int                `json:"passed"`
	Failed int                `json:"failed"`
	Files  []*ruletest.Result `json:"files"`
}

func newTest() *cobra.Command {
	verbose := false
	cmd := &cobra.Command{
		Use: "test FILE|FOLDER...", Short: "Run tests of rules",
		Long: `test runs files of rule tests: requests at instants, and what each must get. It decides them as a
sidecar does, on a virtual clock: a test of a whole day takes no time. docs/guides/test-rules.md explains the files. A
folder is its .yaml and .yml files.`,
		Example: "  spillway test examples/rules/tests",
		Args:    between(1, many), ValidArgsFunction: ruleFiles,
		RunE: printing(func(_ *cobra.Command, out *printer, args []string) error {
			all, err := runTests(args)
			if err == nil {
				err = all.print(out, verbose)
			}
			if err == nil && all.Failed > 0 {
				err = exit(exitFound)
			}
			return err
		}),
	}
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "also list the tests that pass")
	return cmd
}

// runTests runs the files. Where one of them or its rules cannot be used, it returns everything that is wrong and no
// result.
func runTests(paths []string) (*tested, error) {
	all := &tested{}
	var wrong []error
	for _, path := range paths {
		names, err := yamlFiles(path)
		if err != nil {
			wrong = append(wrong, err)
		}
		for _, name := range names {
			err = all.run(name)
			if err != nil {
				wrong = append(wrong, err)
			}
		}
	}
	return all, errors.Join(wrong...)
}

// run runs one file.
func (t *tested) run(name string) error {
	f, err := ruletest.Read(name)
	if err != nil {
		return err
	}
	result, err := ruletest.Run(f)
	if err != nil {
		return err
	}
	t.Files = append(t.Files, result)
	t.Failed += result.Failed()
	t.Passed += len(result.Tests) - result.Failed()
	return nil
}

func (t *tested) print(out *printer, verbose bool) error {
	return out.value(t, func() {
		for _, f := range t.Files {
			f.WriteText(out.out, verbose)
		}
		out.line("%s passed, %d failed in %s", counted(t.Passed, "test"), t.Failed, counted(len(t.Files), "file"))
	})
}
