package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/control/database"
)

const erasureEvery = 250 * time.Millisecond // how often the command asks whether an erasure has ended

func newControlErase() *cobra.Command {
	cmd := &cobra.Command{
		Use: "erase", Short: "Remove the traces of one person in all places, and prove it", Example: "  spillway control erase --domain shop --user ann\n  spillway control erase --domain shop --identity ip:192.0.2.7", Args: between(0, 0),
		Long: `Remove what a control knows of one identity: its row and API keys, its records and counters in Redis,
its usage and events, in the database, in streams that are not copied yet and in the archive, and its name in the
audit. The leading control then searches every place again; the command waits for that, and prints for each place what
was removed and what is left. It exits with 1 if something is left, and may be repeated. It needs the role admin.
Stop or block the person first: what comes in meanwhile is counted as left.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runErase(cmd) },
	}
	addControl(cmd)
	cmd.Flags().String("user", "", "a user")
	cmd.Flags().String("identity", "", "KIND:VALUE: user, tenant, api_key or ip; a value may also be an HMAC, as events show it")
	return cmd
}

func runErase(cmd *cobra.Command) error {
	format, err := outputOf(cmd)
	if err != nil {
		return err
	}
	kind, name, err := whomToErase(cmd)
	if err != nil {
		return err
	}
	domain, err := domainOf(cmd)
	if err != nil {
		return err
	}
	now, err := askControl(cmd, http.MethodDelete, place(domain, "identities", kind, name), nil, nil)
	if err != nil {
		return err
	}
	e, err := awaitErasure(cmd, now)
	if err != nil {
		return err
	}
	if format == "json" {
		err = printJSON(cmd.OutOrStdout(), e)
	} else {
		showErasure(cmd, e)
	}
	if err == nil && e.State != "done" {
		err = exit(exitFound)
	}
	return err
}

// whomToErase is the identity that the flags name.
func whomToErase(cmd *cobra.Command) (kind, name string, err error) {
	user := cmd.Flag("user").Value.String()
	kind, name, _ = strings.Cut(cmd.Flag("identity").Value.String(), ":")
	switch {
	case user != "" && name != "":
		return "", "", errors.New("--user and --identity are both given: use one of them")
	case user != "":
		return "user", user, nil
	case name == "":
		return "", "", errors.New("whom? Use --user NAME or --identity KIND:VALUE")
	}
	return kind, name, nil
}

// awaitErasure asks until the erasure has ended, and shows why it takes long.
func awaitErasure(cmd *cobra.Command, now state) (*database.Erasure, error) {
	told := ""
	for {
		var e database.Erasure
		err := now.read(&e)
		if err != nil || e.ID == 0 {
			return nil, &unreachable{errors.New("the answer names no erasure")}
		}
		if e.State != "open" {
			return &e, nil
		}
		if e.Problem != told {
			told = e.Problem
			fmt.Fprintf(cmd.ErrOrStderr(), "erasure %d is tried again: %s\n", e.ID, plain(told))
		}
		select {
		case <-cmd.Context().Done():
			return nil, cmd.Context().Err()
		case <-time.After(erasureEvery):
		}
		now, err = askControl(cmd, http.MethodGet, fmt.Sprint("/v1/erasures/", e.ID), nil, nil)
		if err != nil {
			return nil, err
		}
	}
}

func showErasure(cmd *cobra.Command, e *database.Erasure) {
	out := cmd.OutOrStdout()
	t := newTable(out, "PLACE", "REMOVED", "LEFT")
	for _, p := range e.Places {
		t.row(p.Place, p.Removed, p.Left)
	}
	t.end()
	if e.State == "done" {
		fmt.Fprintf(out, "erasure %d is done: a second search found nothing\n", e.ID)
		return
	}
	fmt.Fprintf(out, "erasure %d ended, and something is left: %s\n", e.ID, plain(e.Problem))
}
