package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

func newTier() *cobra.Command {
	cmd := &cobra.Command{
		Use: "tier", Short: "Give an identity a tier, or limits of its own", Args: between(0, 0),
		Long: `tier gives a user, a tenant or an API key a tier or limits of its own, in place of those of the rule
file, on all sidecars that share the store. It prints the state before and after.

A limit is written as in a rule file, COUNT/PER, with more behind commas:
5000/1d,algorithm=fixed_window,name=daily. --limit unlimited frees the identity of the limits by it.`,
		Example: "  spillway tier --user alice --tier gold\n  spillway tier --user alice --limit 100/1m,burst=200 --limit 5000/1d,algorithm=fixed_window\n  spillway tier --user alice --tier '' --no-limits",
		RunE: func(cmd *cobra.Command, _ []string) error {
			body := map[string]any{}
			take(cmd, body)
			err := takeLimits(cmd, body)
			if err != nil {
				return err
			}
			return answer(cmd, "POST", "/v1/tier", body, nil, showRecordChange)
		},
	}
	addServer(cmd)
	addWhom(cmd, false)
	cmd.Flags().String("tier", "", "the tier; an empty one goes by the rule file again")
	cmd.Flags().StringArray("limit", nil, "a limit of its own; may be given several times")
	cmd.Flags().Bool("no-limits", false, "remove the limits of its own")
	cmd.Flags().String("note", "", "a note for operators")
	cmd.Flags().Bool("dry-run", false, "change nothing, and print what would change")
	cmd.MarkFlagsMutuallyExclusive("limit", "no-limits")
	return cmd
}

// takeLimits fills in the limits of the flags that are given.
func takeLimits(cmd *cobra.Command, body map[string]any) error {
	if none, _ := cmd.Flags().GetBool("no-limits"); none {
		body["limits"] = []any{}
	}
	written, err := cmd.Flags().GetStringArray("limit")
	if err != nil || len(written) == 0 {
		return err
	}
	var limits []any
	for _, text := range written {
		limit, err := parseLimit(text)
		if err != nil {
			return fmt.Errorf("--limit %s: %w", text, err)
		}
		limits = append(limits, limit)
	}
	body["limits"] = limits
	return nil
}

// parseLimit reads a limit such as 100/1m,burst=200.
func parseLimit(text string) (map[string]any, error) {
	amount, more, _ := strings.Cut(text, ",")
	limit := map[string]any{}
	if amount == "unlimited" {
		limit["unlimited"] = true
	} else {
		count, per, found := strings.Cut(amount, "/")
		n, err := strconv.ParseInt(count, 10, 64)
		if !found || err != nil {
			return nil, fmt.Errorf("%q must be COUNT/PER, such as 100/1m, or unlimited", amount)
		}
		limit["count"], limit["per"] = n, per
	}
	for _, one := range strings.FieldsFunc(more, func(r rune) bool { return r == ',' }) {
		name, value, _ := strings.Cut(one, "=")
		switch name {
		case "name", "algorithm":
			limit[name] = value
		case "burst":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("burst %q must be a whole number", value)
			}
			limit[name] = n
		default:
			return nil, fmt.Errorf("%q must be one of burst=N, algorithm=NAME and name=NAME", one)
		}
	}
	return limit, nil
}
