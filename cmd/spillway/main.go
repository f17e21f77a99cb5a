// Command spillway is the operator's command: it works with rule files, sidecars and the control plane. The table of
// nouns has what it can do with each kind of thing.
package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/spillway-mesh/spillway/whatif"
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

const about = `The command works with rule files, sidecars and the control plane, as in spillway users list: a noun
and a verb. Nouns may be singular. lint, test, diff, replay, explain, top, doctor, block, unblock, tier and reset need
no noun.

Commands ask a sidecar (--server), a control (--control), or none. block, unblock, tier and tenants set ask the
control where one is named, else the sidecar. A flag names a server, else SPILLWAY_SERVER or SPILLWAY_CONTROL, else
the context: spillway context set makes one. Without any, it is on this machine.

Shells complete words: spillway completion --help. Bash needs its package bash-completion for that.

Exit codes:
  0  all is well; also where a control has kept a change that is not in force yet, as the last line states
  1  the command found problems, failing tests, differences, a request to refuse, rules that differ between sidecars,
     or nothing to change
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
	name := (&printer{colour: coloured(diagnostics)}).style(red, "spillway:")
	var ended exit
	var rules *whatif.Unloadable
	var refusal *refusal
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &ended):
		return int(ended)
	case errors.As(err, &rules):
		fmt.Fprintf(diagnostics, "%s the rules do not load:\n%s\n", name,
			cleanText(strings.TrimSuffix(err.Error(), "\n")))
		return exitRules
	}
	fmt.Fprintf(diagnostics, "%s %s\n", name, cleanText(err.Error()))
	switch {
	case errors.Is(err, whatif.ErrFault):
		return exitInternal
	case errors.As(err, &refusal):
		return exitServer
	}
	return exitUsage
}

// exit is the error of a command that has printed all that its caller needs.
type exit int

// Error is there because an exit is an error.
func (e exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// newRoot makes the program's commands.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use: "spillway", Short: "Check, test, compare and replay rate limits", Long: about,
		SilenceUsage: true, SilenceErrors: true, Version: version(),
		Args: known,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("spillway {{.Version}}\n")
	addShared(root.PersistentFlags())
	must(root.RegisterFlagCompletionFunc("output", completeOutput))
	must(root.RegisterFlagCompletionFunc("domain", completeDomains))
	must(root.RegisterFlagCompletionFunc("context", completeContexts))
	root.AddCommand(newLint(), newTest(), newDiff(), newReplay(), newExplain(), newDoctor())
	root.AddCommand(newIdentityWords()...)
	root.AddCommand(newCounters().word("top", "top", "top --all"), newCounters().word("reset", "reset [KIND/]NAME...",
		"reset alice"))
	root.AddCommand(newRulesGroup(), newControl(), newTokens(), newArchive(), newBackups(), newContext(), newVersion())
	for _, n := range nouns() {
		root.AddCommand(n.command())
	}
	return root
}

// addShared adds the flags of all commands.
func addShared(flags *pflag.FlagSet) {
	flags.StringP("output", "o", "table",
		"format: table, wide (all columns), json or yaml; lint also sarif, replay also html")
	flags.String("domain", "", "domain; may be left out where there is one")
	flags.String("context", "", "the context to use; default: SPILLWAY_CONTEXT, else that of spillway context use")
	flags.String("server", "",
		"the debug port of a sidecar; default: SPILLWAY_SERVER, the context's, or "+sidecarAPI.usual)
	flags.String("control", "", "the API of a control; default: SPILLWAY_CONTROL, the context's, or "+controlAPI.usual)
	flags.String("token-file", "", "file that holds the token, where the server wants one")
	flags.String("ca", "", "file of the authority that signed the server's certificate")
	flags.String("cert", "", "file of this client's certificate")
	flags.String("key-file", "", "file of its key")
}

// known refuses a command that does not exist, with those that are spelled like it.
func known(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	root.SuggestionsMinimumDistance = 2
	like := root.SuggestionsFor(args[0])
	if len(like) == 0 {
		return fmt.Errorf("unknown command %q: %s --help lists them", args[0], root.CommandPath())
	}
	return fmt.Errorf("unknown command %q: did you mean %s?", args[0], strings.Join(like, " or "))
}

// group makes a command that only holds others.
func group(name, one, short, long string) *cobra.Command {
	cmd := &cobra.Command{
		Use: name, Short: short, Long: long, Args: known,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	if one != "" && !strings.Contains(one, " ") {
		cmd.Aliases = []string{one}
	}
	return cmd
}

// many lets a command have any number of arguments.
const many = math.MaxInt

// between refuses fewer or more arguments than a command takes.
func between(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > most:
			return fmt.Errorf("%q is one argument too many: the form is %s", args[most], usageOf(cmd))
		case len(args) < least:
			return fmt.Errorf("an argument is missing: the form is %s", usageOf(cmd))
		}
		return nil
	}
}

// usageOf is a command with its arguments.
func usageOf(cmd *cobra.Command) string { return cmd.Parent().CommandPath() + " " + cmd.Use }

// must panics on an error that only a mistake in this program can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// release is the version that `-ldflags "-X main.release=1.2.3"` sets.
var release string

// version is what this program was built from.
func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(unknown version)"
	}
	return info.Main.Version
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of this program", Args: between(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: printing(func(_ *cobra.Command, out *printer, _ []string) error {
			platform := runtime.GOOS + "/" + runtime.GOARCH
			all := object{"version": version(), "go": runtime.Version(), "platform": platform}
			return out.value(all, func() { out.line("spillway %s", version()) })
		}),
	}
}
