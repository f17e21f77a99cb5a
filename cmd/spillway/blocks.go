package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/control/api"
	"github.com/spillway-mesh/spillway/control/database"
)

func newBlocks() *cobra.Command {
	return group("blocks", "List and change the blocks of a control",
		`blocks works with the blocks that a control keeps: all requests of a blocked user, tenant, API key or address
are refused. With a control plane, block here and not with spillway block, which writes to Redis alone.`,
		newBlocksList(), newBlocksAdd(), newBlocksRemove())
}

func newBlocksList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List blocks by kind and name", Example: "  spillway blocks list --domain shop", Args: between(0, 0),
		Long: "It lists the blocks of a domain that are in force.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			domain, err := domainOf(cmd)
			if err != nil {
				return err
			}
			all, err := pages(cmd, place(domain, "blocks"), url.Values{}, func(l *api.BlockList) []database.Block { return l.Blocks },
				func(params url.Values, last *database.Block) {
					params.Set("after_kind", last.Kind)
					params.Set("after", last.Name)
				})
			if err != nil {
				return err
			}
			return put(cmd, api.BlockList{Blocks: all}, showBlocks)
		},
	}
	addControl(cmd)
	cmd.Flags().Int("limit", 100, "how many")
	return cmd
}

func showBlocks(w io.Writer, list api.BlockList) {
	t := newTable(w, "KIND", "NAME", "BLOCKED", "BY", "AT")
	for _, b := range list.Blocks {
		t.row(b.Kind, b.Name, blockWords(b.Until, b.Reason), b.UpdatedBy, instant(b.UpdatedAt))
	}
	t.end()
}

// blockPlace is the path of the block of the identity that the flags name, with words for it.
func blockPlace(cmd *cobra.Command) (path, what string, err error) {
	domain, err := domainOf(cmd)
	if err != nil {
		return "", "", err
	}
	for _, flag := range []string{"user", "tenant", "api-key", "ip"} {
		name := cmd.Flag(flag).Value.String()
		if name == "" {
			continue
		}
		if path != "" {
			return "", "", errors.New("name one of --user, --tenant, --api-key and --ip")
		}
		kind := flag
		if other := fieldNames[flag]; other != "" {
			kind = other
		}
		path, what = place(domain, "blocks", kind, name), fmt.Sprintf("block of the %s %q in the domain %q", flag, name, domain)
	}
	if path == "" {
		return "", "", errors.New("name one of --user, --tenant, --api-key and --ip")
	}
	return path, what, nil
}

func newBlocksAdd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "add", Short: "Block a user, tenant, API key or address", Example: "  spillway blocks add --user mallory --for 1h --reason \"Contact support.\"", Args: between(0, 0),
		Long: "add refuses all requests of a user, a tenant, an API key, an address or a network, within a second and on all sidecars.",
		RunE: func(cmd *cobra.Command, _ []string) error { return addBlock(cmd) },
	}
	addWhom(cmd, false)
	addControl(cmd)
	addLock(cmd)
	cmd.Flags().String("reason", "", "what the client reads")
	cmd.Flags().Bool("wide", false, "block a network wider than /8, of IPv6 /32")
	cmd.Flags().String("for", "", "how long, such as 12h or 7d; default: until it is removed")
	cmd.Flags().String("until", "", "until when, such as 2027-01-01T00:00:00Z")
	cmd.MarkFlagsMutuallyExclusive("for", "until")
	return cmd
}

func addBlock(cmd *cobra.Command) error {
	path, _, err := blockPlace(cmd)
	if err != nil {
		return err
	}
	body := map[string]any{}
	if reason := cmd.Flag("reason").Value.String(); reason != "" {
		body["reason"] = reason
	}
	if text := either(cmd.Flag("for").Value.String(), cmd.Flag("until").Value.String()); text != "" {
		body["until"], err = whenOf(text, time.Now())
	}
	if err != nil {
		return err
	}
	headers, err := blockLock(cmd, path)
	if err != nil {
		return err
	}
	params := url.Values{}
	if wide, _ := cmd.Flags().GetBool("wide"); wide {
		params.Set("wide", "true")
	}
	got, err := askControl(cmd, http.MethodPut, path, body, params, headers...)
	var b database.Block
	if err == nil {
		err = got.read(&b)
	}
	if err != nil {
		return err
	}
	return put(cmd, b, func(w io.Writer, b database.Block) { showBlocks(w, api.BlockList{Blocks: []database.Block{b}}) })
}

// blockLock is the condition of a change of a block. That of a user stands with the user, who may be there without a block.
func blockLock(cmd *cobra.Command, path string) ([]string, error) {
	at := path
	if user := cmd.Flag("user").Value.String(); user != "" {
		domain, err := domainOf(cmd)
		if err != nil {
			return nil, err
		}
		at = place(domain, "users", user)
	}
	now, err := look(cmd, at)
	return lockOf(cmd, now), err
}

func newBlocksRemove() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm", Short: "End a block", Example: "  spillway blocks rm --user mallory", Args: between(0, 0),
		Long: "rm ends a block, within a second and on all sidecars.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, what, err := blockPlace(cmd)
			if err != nil {
				return err
			}
			return remove(cmd, path, what)
		},
	}
	addWhom(cmd, false)
	addControl(cmd)
	addLock(cmd)
	return cmd
}
