package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/control/api"
	"github.com/spillway-mesh/spillway/control/database"
)

func newAudit() *cobra.Command {
	cmd := &cobra.Command{
		Use: "audit", Short: "Show who changed what on a control", Example: "  spillway audit --domain shop --kind user --name ann", Args: between(0, 0),
		Long: "audit lists changes, the newest first: who made them, from where, and what was before and after. The kinds are rules, tier, user, key, tenant, ip and api_key.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			params := url.Values{}
			for _, name := range []string{"domain", "kind", "name"} {
				if value := cmd.Flag(name).Value.String(); value != "" {
					params.Set(name, value)
				}
			}
			all, err := pages(cmd, "/v1/audit", params, func(l *api.AuditList) []database.Entry { return l.Entries },
				func(params url.Values, last *database.Entry) { params.Set("before", strconv.FormatInt(last.ID, 10)) })
			if err != nil {
				return err
			}
			return put(cmd, api.AuditList{Entries: all}, showAudit)
		},
	}
	addControl(cmd)
	cmd.Flags().Lookup("domain").Usage = "changes of one domain alone"
	cmd.Flags().String("kind", "", "changes of one kind alone")
	cmd.Flags().String("name", "", "changes of what has this name")
	cmd.Flags().Int("limit", 50, "how many")
	return cmd
}

func showAudit(w io.Writer, list api.AuditList) {
	t := newTable(w, "AT", "WHO", "FROM", "ACTION", "DOMAIN", "KIND", "NAME", "CHANGE")
	for i := range list.Entries {
		e := &list.Entries[i]
		t.row(instant(e.At), e.Who, e.Address, e.Action, e.Domain, e.Kind, e.Name, changeText(e.Before, e.After))
	}
	t.end()
}

// told are fields that each change has, or that columns of the list show.
var told = []string{"domain", "name", "kind", "id", "revision", "updated_at", "updated_by", "created_at", "created_by", "published_at", "published_by", "hash"}

const changeMost = 160 // characters

// changeText is what differs between two states.
func changeText(before, after map[string]any) string {
	var parts []string
	names := map[string]bool{}
	for _, side := range []map[string]any{before, after} {
		for name := range side {
			names[name] = !slices.Contains(told, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, is := valueText(before[name]), valueText(after[name])
		if !names[name] || was == is {
			continue
		}
		parts = append(parts, fmt.Sprintf("%s: %s → %s", name, either(was, "none"), either(is, "none")))
	}
	text := []rune(strings.Join(parts, ", "))
	if len(text) > changeMost {
		text = append(text[:changeMost-1], '…')
	}
	return string(text)
}

// valueText is a value as JSON, empty for one that is missing, null or empty.
func valueText(value any) string {
	text, err := json.Marshal(value)
	if word := string(text); err != nil || slices.Contains([]string{"null", `""`, "[]", "{}", "0", "false"}, word) {
		return ""
	}
	if word, is := value.(string); is {
		return word
	}
	return string(text)
}
