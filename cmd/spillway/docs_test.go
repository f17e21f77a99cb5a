package main

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// update writes the reference anew in place of comparing it: make docs.
var update = flag.Bool("update", false, "write docs/reference/command.md anew")

const reference = "../../docs/reference/command.md"

// TestReferenceOfTheCommand keeps docs/reference/command.md to what the program's help says.
func TestReferenceOfTheCommand(t *testing.T) {
	var want strings.Builder
	want.WriteString("# The command spillway\n\nWhat `spillway --help` and the help of its commands print (`make docs` writes this page). [Test rules](../guides/test-rules.md) shows\n" +
		"`lint`, `test`, `diff` and `replay` at work. Shells complete commands, flags and files: `source <(spillway completion bash)`.\n")
	root := newRoot()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	root.InitDefaultVersionFlag()
	describe(&want, root)
	for _, cmd := range root.Commands() {
		if cmd.Name() != "completion" && cmd.Name() != "help" {
			describe(&want, cmd)
			for _, below := range cmd.Commands() {
				describe(&want, below)
			}
		}
	}
	if *update {
		err := os.WriteFile(reference, []byte(want.String()), 0o644)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(reference)
	if err != nil || string(got) != want.String() {
		t.Errorf("docs/reference/command.md is not what the help says: run make docs (%v)", err)
	}
}

// describe writes the help of a command as a section.
func describe(to *strings.Builder, cmd *cobra.Command) {
	var help strings.Builder
	cmd.SetOut(&help)
	cmd.InitDefaultHelpFlag()
	_ = cmd.Help()
	to.WriteString("\n## " + cmd.CommandPath() + "\n\n```text\n" + strings.TrimSpace(help.String()) + "\n```\n")
}

// TestPagesShowWhatTheProgramPrints: the commands of docs/guides/test-rules.md run, and the lines below them are among what they print.
func TestPagesShowWhatTheProgramPrints(t *testing.T) {
	t.Chdir("../..")
	page, err := os.ReadFile("docs/guides/test-rules.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, block := range strings.Split(string(page), "```text\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		lines := strings.Split(strings.TrimSuffix(block, "\n"), "\n")
		command, found := strings.CutPrefix(lines[0], "$ spillway ")
		if !found {
			t.Errorf("a block begins with %q and not with a command", lines[0])
			continue
		}
		shown++
		got := call("", strings.Fields(command)...)
		printed := strings.Split(got.out+got.errors, "\n")
		for _, line := range lines[1:] {
			if line != "…" && !contains(printed, line) {
				t.Errorf("%s does not print %q:\n%s%s", lines[0], line, got.out, got.errors)
			}
		}
	}
	if shown < 4 {
		t.Errorf("the page shows %d commands, want lint, test, diff and replay", shown)
	}
}

// contains reports whether a line is among others, whatever blanks end it.
func contains(lines []string, wanted string) bool {
	for _, line := range lines {
		if strings.TrimRight(line, " ") == wanted {
			return true
		}
	}
	return false
}
