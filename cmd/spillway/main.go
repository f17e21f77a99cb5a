// Command spillway is the operator's command: it checks rule files, tests them, compares them, and replays access logs against them.
package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/whatif/trial"
)

// Exit codes. The help of the program lists them.
const (
	exitOK       = 0
	exitFound    = 1 // the command ran, and found what it looks for
	exitUsage    = 2 // wrong arguments, or a file that cannot be read or written
	exitRules    = 3 // a rule set does not load, so nothing was run
	exitBroken   = 4 // the log has lines that cannot be read; the report is about the others
	exitInternal = 5 // the program is at fault
	exitServer   = 6 // the sidecar or control cannot be reached, or refuses
)

const about = `spillway works with rule files, sidecars and the control plane. lint, test, diff and replay need files
alone. explain, usage, top, fleet and rules ask a running sidecar by its admin API; block, unblock, tier, pardon and
reset change what it does.

control serves the control plane. users, keys, tiers, blocks, events and audit read and change its database. So do
rules and usage with a subcommand, such as rules list; without one they ask a sidecar. --control names the control,
--server the sidecar. archive works with the files of old events.

Exit codes:
  0  all is well
  1  the command found problems, failing tests, differences, a request to refuse, or rules that differ in a fleet
  2  wrong arguments, or a file that cannot be read or written
  3  a rule set does not load: all its problems are listed, and nothing was run
  4  a log has lines that cannot be read; the report is about the others
  5  the program is at fault
  6  the sidecar or control that was asked cannot be reached, or refuses`

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run is the whole program.
func run(args []string, in io.Reader, out, diagnostics io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(diagnostics)
	return report(root.Execute(), diagnostics)
}

// report writes an error that was not written yet, and returns the exit code.
func report(err error, diagnostics io.Writer) int {
	diagnostics = cleaned{diagnostics}
	var ended exit
	var rules *trial.Unloadable
	var refused *unreachable
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &ended):
		return int(ended)
	case errors.As(err, &rules):
		fmt.Fprintf(diagnostics, "spillway: the rules do not load:\n%s\n", strings.TrimSuffix(err.Error(), "\n"))
		return exitRules
	}
	fmt.Fprintf(diagnostics, "spillway: %v\n", err)
	switch {
	case errors.Is(err, trial.ErrFault):
		return exitInternal
	case errors.As(err, &refused):
		return exitServer
	}
	return exitUsage
}

// exit is the error of a command that has said all there is to say.
type exit int

// Error is there because an exit is an error.
func (e exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// newRoot makes the program's commands. Each has a file of its own.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use: "spillway", Short: "Check, test, compare and replay rate limits", Long: about,
		SilenceUsage: true, SilenceErrors: true, Version: version(),
		Args: known,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("spillway {{.Version}}\n")
	root.PersistentFlags().StringP("output", "o", "text", "format of what is printed: text or json; lint also sarif, replay also html")
	must(root.RegisterFlagCompletionFunc("output", completeOutput))
	root.AddCommand(newLint(), newTest(), newDiff(), newReplay(), newVersion())
	root.AddCommand(newOperate()...)
	root.AddCommand(newControl(), newArchive(), newUsers(), newKeys(), newTiers(), newBlocks(), newEvents(), newAudit())
	return root
}

// known refuses a command that does not exist, with those that are spelled like it.
func known(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	root.SuggestionsMinimumDistance = 2
	like := root.SuggestionsFor(args[0])
	if len(like) == 0 {
		return fmt.Errorf("there is no command %q: %s --help lists them", args[0], root.CommandPath())
	}
	return fmt.Errorf("there is no command %q: did you mean %s?", args[0], strings.Join(like, " or "))
}

// noneOrKnown is for a command without arguments that has others below it.
func noneOrKnown(cmd *cobra.Command, args []string) error {
	cmd.SuggestionsMinimumDistance = 2
	if len(args) > 0 && len(cmd.SuggestionsFor(args[0])) > 0 {
		return known(cmd, args)
	}
	return between(0, 0)(cmd, args)
}

// many is no bound for the arguments of a command.
const many = math.MaxInt

// between refuses fewer or more arguments than a command takes.
func between(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > most:
			return fmt.Errorf("%q is too much: it is spillway %s", args[most], cmd.Use)
		case len(args) < least:
			return fmt.Errorf("an argument is missing: it is spillway %s", cmd.Use)
		}
		return nil
	}
}

// must panics on an error that only a mistake in this program can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
