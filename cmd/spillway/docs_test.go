package main

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// update writes the reference anew in place of comparing it: make docs.
var update = flag.Bool("update", false, "write docs/reference/command.md anew")

const reference = "../../docs/reference/command.md"

// TestReferenceOfTheCommand compares docs/reference/command.md with the program's help.
func TestReferenceOfTheCommand(t *testing.T) {
	root := newRoot()
	var all []*cobra.Command
	for _, cmd := range root.Commands() {
		all = append(append(all, cmd), cmd.Commands()...)
	}
	shared := sharedFlags(all)
	var want strings.Builder
	fmt.Fprintf(&want, commandPage, prose(root.Long), usages(root.PersistentFlags()), usages(shared))
	described := map[string]string{}
	for _, cmd := range all {
		describe(&want, cmd, shared, described)
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
		t.Errorf("docs/reference/command.md differs from the help: run make docs (%v)", err)
	}
}

const commandPage = `# The command spillway

This page comes from the help of the program (` + "`make docs`" + `). [Test rules](../guides/test-rules.md) shows
` + "`lint`, `test`, `diff` and `replay`" + ` at work. Shells complete words:
` + "`source <(spillway completion bash)`" + `. Bash needs its package ` + "`bash-completion`" + ` for that.

%s
## Shared flags

A command's heading has its arguments, its section its flags, examples and, behind "Also", flags of this section. All
commands have:

` + "```text\n%s```" + `

Flags that at least three commands have in common:

` + "```text\n%s```" + `
`

// sharedFlags are flags that at least three commands have with one meaning, by the most frequent meaning of each name.
func sharedFlags(all []*cobra.Command) *pflag.FlagSet {
	uses := map[string]int{}
	flags := map[string]*pflag.Flag{}
	for _, cmd := range all {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && !f.Hidden {
				uses[meaning(f)]++
				flags[meaning(f)] = f
			}
		})
	}
	shared := pflag.NewFlagSet("shared", pflag.ContinueOnError)
	keys := slices.Collect(maps.Keys(uses))
	slices.SortFunc(keys, func(a, b string) int { return cmp.Or(uses[b]-uses[a], strings.Compare(a, b)) })
	for _, key := range keys {
		if f := flags[key]; uses[key] >= 3 && shared.Lookup(f.Name) == nil {
			shared.AddFlag(f)
		}
	}
	return shared
}

// meaning is all that the help has about a flag.
func meaning(f *pflag.Flag) string { return f.Name + "\n" + f.Usage + "\n" + f.DefValue }

// usages are flags as the help shows them.
func usages(flags *pflag.FlagSet) string { return flags.FlagUsages() }

// prose is a text of the help as Markdown: indented lines are the items of a list.
func prose(text string) string {
	var out strings.Builder
	for line := range strings.Lines(strings.TrimSpace(text) + "\n") {
		if strings.HasPrefix(line, "    ") {
			line = "  " + strings.TrimLeft(line, " ")
		} else if item, is := strings.CutPrefix(line, "  "); is {
			name, what, _ := strings.Cut(item, " ")
			line = "- `" + name + "`: " + strings.TrimLeft(what, " ")
		}
		out.WriteString(line)
	}
	return out.String()
}

// describe writes the section of a command: its help without what is under the shared flags. A command that is
// described already under another name refers to that.
func describe(to *strings.Builder, cmd *cobra.Command, shared *pflag.FlagSet, described map[string]string) {
	heading := "\n## "
	if cmd.Parent().HasParent() {
		heading = "\n### "
	}
	to.WriteString(heading + cmd.Parent().CommandPath() + " " + cmd.Use + "\n\n")
	help := cmp.Or(cmd.Long, cmd.Short)
	if same := described[help]; same != "" {
		to.WriteString("The same as `" + same + "`.\n")
		return
	}
	described[help] = cmd.CommandPath()
	to.WriteString(prose(help))
	own := pflag.NewFlagSet("own", pflag.ContinueOnError)
	var common []string
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		switch of := shared.Lookup(f.Name); {
		case f.Name == "help", f.Hidden:
		case of != nil && meaning(of) == meaning(f):
			common = append(common, "`--"+f.Name+"`")
		default:
			own.AddFlag(f)
		}
	})
	var parts []string
	if own.HasFlags() {
		parts = append(parts, usages(own))
	}
	if cmd.HasExample() {
		parts = append(parts, cmd.Example+"\n")
	}
	if len(parts) > 0 {
		to.WriteString("\n```text\n" + strings.Join(parts, "\n") + "```\n")
	}
	if len(common) > 0 {
		to.WriteString("\nAlso: " + strings.Join(common, ", ") + ".\n")
	}
}

// TestPagesShowWhatTheProgramPrints: the commands of docs/guides/test-rules.md run, and the lines below them are
// among what they print.
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

// contains reports whether a line is among others. Blanks at its end do not count.
func contains(lines []string, wanted string) bool {
	for _, line := range lines {
		if strings.TrimRight(line, " ") == wanted {
			return true
		}
	}
	return false
}

// TestPagesNameCommandsThatExist checks commands in code of all pages: their words, and their flags.
func TestPagesNameCommandsThatExist(t *testing.T) {
	shown := regexp.MustCompile("(?m)(?:`|^ *(?:\\$ )?|[A-Z_0-9]+=[^ ]+ |bin/)spillway" +
		" ((?:--[a-z]+ [^ ]+ )?[a-z][^`\n#|>]*)")
	named := 0
	for _, pattern := range []string{
		"*.md", "docs/*.md", "docs/*/*.md", "deploy/helm/*/*.md", "deploy/helm/*/templates/*.txt", "examples/*/*.md",
		"examples/*/*.sh",
	} {
		pages, err := filepath.Glob("../../" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range shown.FindAllStringSubmatch(string(text), -1) {
				named++
				if problem := unknown(strings.Fields(found[1])); problem != "" {
					t.Errorf("%s: spillway %s: %s", page, found[1], problem)
				}
			}
		}
	}
	if named < 60 {
		t.Errorf("the pages name %d commands: they have another shape than this test reads", named)
	}
}

// unknown is what the program does not know of a command, empty where it knows all.
func unknown(args []string) string {
	cmd, rest, err := newRoot().Find(args)
	switch {
	case err != nil:
		return err.Error()
	case cmd.HasSubCommands() && len(rest) > 0 && rest[0][0] != '-' && strings.ToLower(rest[0]) == rest[0]:
		return "there is no " + rest[0]
	}
	for _, word := range rest {
		name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
		if strings.HasPrefix(word, "--") && cmd.Flag(name) == nil && cmd.InheritedFlags().Lookup(name) == nil {
			return "there is no flag " + word
		}
	}
	return ""
}
