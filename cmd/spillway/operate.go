package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"

	"github.com/spf13/cobra"
)

// whom are the flags that name an identity.
var whom = []struct{ flag, help string }{
	{"domain", "domain; may be left out where there is one"},
	{"user", "a user"},
	{"tenant", "a tenant"},
	{"api-key", "the id of an API key"},
	{"ip", "an address or a network"},
}

// besides are the flags that name counters.
var besides = []struct{ flag, help string }{
	{"endpoint", "a path, for rules that count by it"},
	{"tier", "a tier, for rules that count by it"},
}

// newOperate makes the commands that ask a running sidecar.
func newOperate() []*cobra.Command {
	return []*cobra.Command{
		newExplain(), newUsage(), newTop(), newFleet(), newRules(),
		newChange("reset", "Make counters full", "reset --user alice", true, nil),
		newChange("pardon", "End the cool-downs of an identity", "pardon --user alice", true, nil),
		newChange("block", "Refuse all requests of an identity", `block --user mallory --for 1h --reason "Contact support."`, false, func(cmd *cobra.Command) {
			cmd.Flags().String("reason", "", "what the client reads")
			cmd.Flags().String("for", "", "how long, such as 10m or 7d")
			cmd.Flags().String("until", "", "until when, such as 2027-01-01T00:00:00Z")
			cmd.Flags().String("note", "", "a note for operators")
		}),
		newChange("unblock", "End a block", "unblock --user mallory", false, func(cmd *cobra.Command) {
			cmd.Flags().Bool("lift", false, "also lift the blocks of the rule file that name the identity")
			cmd.Flags().String("note", "", "a note for operators")
		}),
		newTier(),
	}
}

// newChange makes a command that changes something: its flags are the fields of the request.
func newChange(name, short, example string, counters bool, more func(*cobra.Command)) *cobra.Command {
	cmd := &cobra.Command{
		Use: name, Short: short, Example: "  spillway " + example, Args: between(0, 0),
		Long: short + ", on all sidecars that share the store.\n" +
			"It prints the state before and after.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			body := map[string]any{}
			take(cmd, body)
			if counters {
				return answer(cmd, "POST", "/v1/"+name, body, nil, showCountersChange)
			}
			return answer(cmd, "POST", "/v1/"+name, body, nil, showRecordChange)
		},
	}
	addServer(cmd)
	addWhom(cmd, counters)
	if counters {
		cmd.Flags().StringSlice("keys", nil, "keys of counters, in place of all others")
	}
	cmd.Flags().Bool("dry-run", false, "change nothing, and print what would change")
	if more != nil {
		more(cmd)
	}
	return cmd
}

// fieldNames are the fields of flags that are called otherwise.
var fieldNames = map[string]string{"api-key": "api_key", "dry-run": "dry_run"}

// take fills in the fields of the flags that are given.
func take(cmd *cobra.Command, body map[string]any) {
	for _, name := range []string{"domain", "user", "tenant", "api-key", "ip", "endpoint", "tier", "keys", "reason", "for", "until", "note", "lift", "dry-run"} {
		f := cmd.Flags().Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		field := name
		if other := fieldNames[name]; other != "" {
			field = other
		}
		switch f.Value.Type() {
		case "bool":
			body[field] = f.Value.String() == "true"
		case "stringSlice":
			body[field], _ = cmd.Flags().GetStringSlice(name)
		default:
			body[field] = f.Value.String()
		}
	}
}

// addWhom adds the flags that name an identity, and those that name counters.
func addWhom(cmd *cobra.Command, counters bool) {
	for _, w := range whom {
		cmd.Flags().String(w.flag, "", w.help)
	}
	if !counters {
		return
	}
	for _, w := range besides {
		cmd.Flags().String(w.flag, "", w.help)
	}
}

func newUsage() *cobra.Command {
	cmd := &cobra.Command{
		Use: "usage", Short: "Show what an identity has left; its subcommands: what it used, by a control's record",
		Example: "  spillway usage --user alice", Args: noneOrKnown,
		Long: `usage lists the counters of an identity, or of a key, with what is left on each and its record. Its
subcommands show what a control has on record.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return answer(cmd, "GET", "/v1/usage", nil, query(cmd), showUsage)
		},
	}
	addServer(cmd)
	addWhom(cmd, true)
	cmd.Flags().String("key", "", "the key of a counter, in place of all others")
	cmd.AddCommand(newUsageOfControl()...)
	return cmd
}

// query is the parameters of the flags that are given.
func query(cmd *cobra.Command) url.Values {
	values := url.Values{}
	body := map[string]any{}
	take(cmd, body)
	for name, value := range body {
		values.Set(name, fmt.Sprint(value))
	}
	for _, name := range []string{"key", "rule", "limit", "fleet"} {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
			values.Set(name, f.Value.String())
		}
	}
	return values
}

func newTop() *cobra.Command {
	cmd := &cobra.Command{
		Use: "top", Short: "Show the keys that are asked for and refused most", Example: "  spillway top --fleet", Args: between(0, 0),
		Long: "top lists the keys that were asked for and refused most in the last one to two minutes, each with the error of its count.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return answer(cmd, "GET", "/v1/top", nil, query(cmd), showTop)
		},
	}
	addServer(cmd)
	cmd.Flags().String("domain", "", "one domain alone")
	cmd.Flags().String("rule", "", "one rule alone")
	cmd.Flags().Int("limit", 20, "how many of each list")
	cmd.Flags().Bool("fleet", false, "ask all sidecars that share the store")
	return cmd
}

func newFleet() *cobra.Command {
	cmd := &cobra.Command{
		Use: "fleet", Short: "Show every sidecar that shares the store, with its rules", Args: between(0, 0),
		Long: "fleet lists every sidecar that shares the store, with its version, its rules and what is degraded. It exits with 1 if their rules differ.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return answer(cmd, "GET", "/v1/fleet", nil, nil, showFleet)
		},
	}
	addServer(cmd)
	return cmd
}

func newRules() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rules", Short: "Show the rules in use; its subcommands: the versions of a control", Args: noneOrKnown,
		Long: `rules lists the limits, blocks and allows that a sidecar uses, with where they are written. Its
subcommands work with the versions that a control keeps and publishes.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return answer(cmd, "GET", "/v1/rules", nil, query(cmd), showRules)
		},
	}
	addServer(cmd)
	cmd.Flags().String("domain", "", "one domain alone")
	cmd.AddCommand(newRulesOfControl()...)
	return cmd
}

func newExplain() *cobra.Command {
	method, peer, host, principal := "", "", "", ""
	headers := map[string]string{}
	cmd := &cobra.Command{
		Use: "explain [PATH]", Short: "Show what a request would get, and why", Args: between(0, 1),
		Long: `explain shows what a request would get now, and why: who it is taken for, every rule that could apply and what beat it, what is left, and what both
doors would answer. It charges nothing. The request is an HTTP request to PATH, or a RateLimitRequest as JSON on standard input without PATH.

It exits with 1 if the request would be refused.`,
		Example: "  spillway explain /search --method POST --peer 192.0.2.7\n  spillway explain <request.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				var request json.RawMessage
				err := json.NewDecoder(cmd.InOrStdin()).Decode(&request)
				if err != nil {
					return fmt.Errorf("read a RateLimitRequest from standard input: %w", err)
				}
				return answer(cmd, "POST", "/v1/explain", map[string]any{"rls": request}, nil, showExplained)
			}
			request := map[string]any{"method": method, "path": args[0]}
			for name, value := range map[string]string{"peer": peer, "host": host, "principal": principal, "domain": cmd.Flag("domain").Value.String()} {
				if value != "" {
					request[name] = value
				}
			}
			if len(headers) > 0 {
				request["headers"] = headers
			}
			return answer(cmd, "POST", "/v1/explain", map[string]any{"http": request}, nil, showExplained)
		},
	}
	addServer(cmd)
	cmd.Flags().String("domain", "", "domain; default: the sidecar's DEFAULT_DOMAIN")
	cmd.Flags().StringVar(&method, "method", "GET", "method of the request")
	cmd.Flags().StringVar(&peer, "peer", "", "address of the connection's other end")
	cmd.Flags().StringVar(&host, "host", "", "host of the request")
	cmd.Flags().StringVar(&principal, "principal", "", "principal of the peer's certificate")
	cmd.Flags().StringToStringVar(&headers, "header", nil, "headers, as name=value")
	return cmd
}

// answer asks the sidecar and prints what it says, as text by show, which reports whether the command found what it looks for: then it
// ends with 1.
func answer[T any](cmd *cobra.Command, method, path string, body any, params url.Values, show func(io.Writer, *T) bool) error {
	format, err := outputOf(cmd)
	if err != nil {
		return err
	}
	document, err := ask(cmd, method, path, body, params)
	var view T
	if err == nil {
		err = understand(document, &view)
	}
	var refused *unreachable
	if errors.As(err, &refused) {
		fmt.Fprintf(cleaned{cmd.ErrOrStderr()}, "spillway: %v\n", err)
		return exit(exitServer)
	}
	if err != nil {
		return err
	}
	text := io.Writer(cleaned{cmd.OutOrStdout()})
	if format == "json" {
		err = printJSON(cmd.OutOrStdout(), document)
		text = io.Discard
	}
	if found := show(text, &view); err == nil && found {
		return exit(exitFound)
	}
	return err
}

// understand reads a document that a sidecar sent.
func understand(document json.RawMessage, view any) error {
	err := json.Unmarshal(document, view)
	if err != nil {
		return &unreachable{fmt.Errorf("the answer is not understood: %w; is the server of another version?", err)}
	}
	return nil
}

// addServer adds the flags that say where the sidecar is, and who asks.
func addServer(cmd *cobra.Command) {
	at := os.Getenv("SPILLWAY_SERVER")
	if at == "" {
		at = "http://127.0.0.1:6070"
	}
	cmd.Flags().String("server", at, "the debug port of a sidecar; SPILLWAY_SERVER sets the default")
	cmd.Flags().String("token-file", "", "file that holds the token, where the sidecar has ADMIN_TOKEN_FILE")
	cmd.Flags().String("ca", "", "file of the authority that signed the sidecar's certificate")
	cmd.Flags().String("cert", "", "file of this client's certificate")
	cmd.Flags().String("key-file", "", "file of its key")
}
