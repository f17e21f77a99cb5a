package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// outputs are the formats of the commands that have others than text and json.
var outputs = map[string][]string{"lint": {"text", "json", "sarif"}, "replay": {"text", "json", "html"}}

// formats are those of a command.
func formats(cmd *cobra.Command) []string {
	if own := outputs[cmd.Name()]; own != nil {
		return own
	}
	return []string{"text", "json"}
}

// outputOf returns the format that was asked for.
func outputOf(cmd *cobra.Command) (string, error) {
	format, err := cmd.Flags().GetString("output")
	if err != nil {
		return "", err
	}
	if known := formats(cmd); !slices.Contains(known, format) {
		return "", fmt.Errorf("%s prints %s, not %q", cmd.Name(), strings.Join(known, ", "), format)
	}
	return format, nil
}

func completeOutput(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return formats(cmd), cobra.ShellCompDirectiveNoFileComp
}

// printJSON writes a value for programs.
func printJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// ruleFiles completes names of rule files and folders.
func ruleFiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
}

// yamlFile reports whether a name in a folder is that of a file to read.
func yamlFile(name string) bool {
	return !strings.HasPrefix(name, ".") && (strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml"))
}
