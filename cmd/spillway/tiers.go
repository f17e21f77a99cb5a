package main

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/control/api"
	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/records"
)

func newTiers() *cobra.Command {
	return group("tiers", "List and change the tiers of a control",
		"tiers works with the tiers that a control keeps: plans that users and API keys are on, with the\n"+
			"limits of each of their users.",
		newTiersList(), newTiersSet(), newRemove("tiers", "tier", "Remove a tier that is not in use"))
}

func newTiersList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List tiers in their order", Example: "  spillway tiers list --domain shop", Args: between(0, 0),
		Long: "It lists the tiers of a domain, in their order.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			domain, err := domainOf(cmd)
			if err != nil {
				return err
			}
			now, err := askControl(cmd, http.MethodGet, place(domain, "tiers"), nil, nil)
			var list api.TierList
			if err == nil {
				err = now.read(&list)
			}
			if err != nil {
				return err
			}
			return put(cmd, list, showTiers)
		},
	}
	addControl(cmd)
	return cmd
}

func showTiers(w io.Writer, list api.TierList) {
	t := newTable(w, "NAME", "DISPLAY NAME", "LIMITS", "PRICE", "ORDER", "CHANGED BY", "CHANGED AT")
	for i := range list.Tiers {
		one := &list.Tiers[i]
		t.row(one.Name, one.DisplayName, limitsText(one.Limits), orEmpty(one.Price), one.Rank, one.UpdatedBy, instant(one.UpdatedAt))
	}
	t.end()
}

// limitsText is limits as the flag limit takes them.
func limitsText(limits []records.LimitRequest) string {
	texts := make([]string, len(limits))
	for i, l := range limits {
		text := "unlimited"
		if l.Count != nil {
			text = fmt.Sprintf("%d/%s", *l.Count, l.Per)
		}
		if l.Burst != nil {
			text += fmt.Sprintf(",burst=%d", *l.Burst)
		}
		if l.Algorithm != "" {
			text += ",algorithm=" + l.Algorithm
		}
		if l.Name != "" {
			text += ",name=" + l.Name
		}
		texts[i] = text
	}
	return strings.Join(texts, " ")
}

func newTiersSet() *cobra.Command {
	cmd := &cobra.Command{
		Use: "set NAME", Short: "Make a tier, or change it", Example: "  spillway tiers set gold --limit 1000/1m --price 49 --display-name Gold", Args: between(1, 1),
		Long: `set makes a tier, or changes what the flags name of one that is there. Limits are of each
user of the tier, written as in a rule file: 100/1m,burst=200. They are in force on all sidecars within a second,
where rules of the domain are published. Where another changes the tier meanwhile, the command fails.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return set(cmd, "tiers", args[0], []string{"display_name", "limits", "price", "rank"}, func(body map[string]any) error {
				return takeTierFields(cmd, body)
			}, func(w io.Writer, t database.Tier) { showTiers(w, api.TierList{Tiers: []database.Tier{t}}) })
		},
	}
	addControl(cmd)
	addLock(cmd)
	cmd.Flags().String("display-name", "", "what people call it")
	cmd.Flags().StringArray("limit", nil, "a limit of each of its users; may be given several times")
	cmd.Flags().Bool("no-limits", false, "remove its limits")
	cmd.Flags().String("price", "", "its price, or none")
	cmd.Flags().Int32("rank", 0, "its place in the order of tiers")
	cmd.MarkFlagsMutuallyExclusive("limit", "no-limits")
	return cmd
}

// takeTierFields fills in the flags of a tier that are given.
func takeTierFields(cmd *cobra.Command, body map[string]any) error {
	if f := cmd.Flags().Lookup("display-name"); f.Changed {
		body["display_name"] = f.Value.String()
		if f.Value.String() == "" {
			delete(body, "display_name")
		}
	}
	if cmd.Flags().Changed("rank") {
		body["rank"], _ = cmd.Flags().GetInt32("rank")
	}
	if f := cmd.Flags().Lookup("price"); f.Changed {
		price, err := strconv.ParseFloat(f.Value.String(), 64)
		switch {
		case f.Value.String() == "none":
			delete(body, "price")
		case err != nil:
			return fmt.Errorf("--price is %q and must be a number or none", f.Value.String())
		default:
			body["price"] = price
		}
	}
	return takeLimits(cmd, body)
}
