package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/sidecar"
	"github.com/spillway-mesh/spillway/sidecar/settings"
	"github.com/spillway-mesh/spillway/test/servers"
)

// operated starts a sidecar on memory, and waits until it answers a command with these arguments. It returns how to
// name it.
func operated(t *testing.T, args []string, environ ...string) string {
	t.Helper()
	rules := write(t, "rules.yaml", goodRules+"  - { name: abusers, match: { users: [eve] }, action: block }\n")
	cfg, err := settings.FromEnvironment(append([]string{"PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0", "RULES=" + rules},
		environ...), "sidecar")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Output = io.Discard
	s, err := sidecar.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.Close()
	})
	at := "http://" + s.Addresses().Debug
	servers.Await(t, "the rules", func() error {
		got := call("", append([]string{"rules", "show", "--server", at}, args...)...)
		if got.code != exitOK || !strings.Contains(got.out, "per-user") {
			return exit(got.code)
		}
		return nil
	})
	return at
}

func TestARunningSidecarIsAsked(t *testing.T) {
	at := operated(t, nil)
	const mallory = `{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"mallory"}]}]}`
	for _, c := range []struct {
		code           int
		says, in, line string
	}{
		{exitOK, "per-user", "", "counters list alice"},
		{exitOK, "allowed (200) by per-user in shop", mallory, "explain"},
		{exitOK, "nothing is changed: user mallory in shop", "", "block mallory --dry-run"},
		{exitOK, "allowed (200) by per-user in shop", mallory, "explain"},
		{exitOK, `"No" (by local, `, "", "block mallory --for 1h --reason No"},
		{exitFound, "blocked (403) by ", mallory, "explain"},
		{exitFound, "blocked (403) by ", "", "explain /x --user mallory"},
		{exitOK, "after:  none", "", "blocks rm user/mallory"},
		{exitOK, `"outcome": "allowed"`, mallory, "explain -o json"},
		{exitOK, "outcome: allowed", mallory, "explain -o yaml"},
		{exitOK, "no_limit (200) in shop", "", "explain /search --domain shop --peer 192.0.2.7 --header x=y"},
		{exitOK, "no_limit (200) in shop", "", "explain --domain shop --header x:y"},
		{exitUsage, `--header is ":y" and must be 'name: value'`, "", "explain / --header :y"},
		{exitOK, "client: user ann, by --user\n", "", "explain --domain shop --user ann"},
		{exitOK, "client: user ann, tier gold, by --user and --tier\n", "", "explain --domain shop --user ann " +
			"--tier gold"},
		{exitOK, "by --api-key\nthe API key \"k9\" is not known to the rule file\n", "", "explain --domain shop " +
			"--api-key k9"},
		{exitFound, "no counter of user alice in shop has been used: nothing to reset", "", "reset alice"},
		{exitFound, "no counter of user alice in shop has a cool-down", "", "counters pardon alice"},
		{exitOK, "user alice, endpoint /search in shop", "", "counters list alice endpoint//search"},
		{exitOK, "1 sidecar, all with the same rules", "", "sidecars list"},
		{exitOK, "asked for most: no key", "", "top --all --limit 3"},
		{exitOK, "after:  tier gold, own limit 100/1m token_bucket burst 200 (by local", "",
			"tier bob gold --limit 100/1m,burst=200"},
		{exitOK, "not shown: per-user (1/1m token_bucket): its own limit takes its place", "", "counters list bob"},
		{exitOK, "own limit  bob", "", "counters list bob"},
		{exitOK, "nothing is kept of user nosuch in shop, and no counter has been used", "", "counters list nosuch"},
		{exitServer, `there are some for shop`, "", "counters list alice --domain shp"},
		{exitServer, `unknown domain "shp": there is shop; did you mean "shop"?`, "", "top --domain shp"},
		{exitServer, `unknown rule "per-usr": there are abusers, per-user; did you mean "per-user"?`, "",
			"top --rule per-usr"},
		{exitServer, "--limit must be a whole number", "", "top --limit many"},
		{exitOK, "no rule of the domain \"shop\" names the tier \"gold\"", "", "tier bob gold"},
		{exitOK, "after:  none", "", "tier bob none --limit none"},
		{exitOK, "tenant acme in shop", "", "tenant set acme --tier gold"},
		{exitUsage, "must be COUNT/PER", "", "tier bob --limit many"},
		{exitServer, "limits[0].per", "", "tier bob --limit 5/soon"},
		{exitServer, "looks like a path", "", "block user//search"},
		{exitUsage, "name whom", "", "reset"},
		{exitUsage, "RateLimitRequest from standard input", "", "explain"},
		{exitUsage, "a sidecar cannot list blocks", "", "blocks list"},
	} {
		got := call(c.in, append(strings.Fields(c.line), "--server", at)...)
		if got.code != c.code || !strings.Contains(got.out+got.errors, c.says) {
			t.Errorf("spillway %s: %d\n%s%s\nwant %d with %q", c.line, got.code, got.out, got.errors, c.code, c.says)
		}
	}
}

// TestAQuestionIsNotAnsweredByHalf: a question that names none of several domains is an error. An answer that leaves
// out descriptor trees has a note.
func TestAQuestionIsNotAnsweredByHalf(t *testing.T) {
	file := write(t, "edge.yaml", "domain: edge\ndescriptors:\n  - key: user\n    rate_limit: { unit: hour, "+
		"requests_per_unit: 0 }\n")
	must(os.WriteFile(filepath.Join(filepath.Dir(file), "shop.yaml"), []byte(goodRules), 0o600))
	at := operated(t, []string{"--domain", "shop"}, "RULES="+filepath.Dir(file))
	const trees = "the domain edge also has descriptor trees, which this question does not ask: send a RateLimitRequest"
	for _, c := range []struct {
		code           int
		says, in, line string
	}{
		{exitUsage, "domain is missing: name one of edge, shop", "", "explain /x --user mallory"},
		{exitOK, "no rule matches (200) in edge\n" + trees, "", "explain /rls --user carl --domain edge"},
		{exitOK, `"note": "` + trees, "", "explain /rls --user carl --domain edge -o json"},
		{exitOK, "no_limit (200) in shop\nclient: ", "", "explain /x --peer 192.0.2.7 --domain shop"},
		{exitFound, "refused (429) by ",
			`{"domain":"edge","descriptors":[{"entries":[{"key":"user","value":"carl"}]}]}`, "explain"},
	} {
		got := call(c.in, append(strings.Fields(c.line), "--server", at)...)
		if got.code != c.code || !strings.Contains(got.out+got.errors, c.says) {
			t.Errorf("spillway %s: %d\n%s%s\nwant %d with %q", c.line, got.code, got.out, got.errors, c.code, c.says)
		}
	}
}

func TestATokenIsSentAlong(t *testing.T) {
	file := write(t, "tokens", "view vera 0123456789abcdef\n")
	at := "http://127.0.0.1:1"
	if got := call("", "sidecars", "list", "--server", at); got.code != exitServer {
		t.Errorf("without a sidecar: %+v", got)
	}
	t.Setenv("SPILLWAY_SERVER", at)
	if got := call("", "sidecars", "list"); got.code != exitServer || !strings.Contains(got.errors, "127.0.0.1:1") {
		t.Errorf("SPILLWAY_SERVER is not asked: %+v", got)
	}
	viewer := []string{"--token-file", write(t, "token", "0123456789abcdef\n")}
	at = operated(t, viewer, "ADMIN_TOKEN_FILE="+file)
	for _, server := range []string{at, strings.TrimPrefix(at, "http://")} {
		got := call("", "sidecars", "list", "--server", server)
		if got.code != exitServer || !strings.Contains(got.errors, "wants a token: --token-file") {
			t.Errorf("%s without the token: %+v", server, got)
		}
	}
	got := call("", append([]string{"block", "x", "--server", at}, viewer...)...)
	if got.code != exitServer || !strings.Contains(got.errors, "a token of a higher role is needed") {
		t.Errorf("with a token that may view: %+v", got)
	}
}
