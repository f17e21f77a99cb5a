package main

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/sidecar"
	"github.com/spillway-mesh/spillway/sidecar/settings"
	"github.com/spillway-mesh/spillway/test/servers"
)

// operated starts a sidecar on memory, and returns how to name it.
func operated(t *testing.T, environ ...string) string {
	t.Helper()
	rules := write(t, "rules.yaml", goodRules+"  - { name: abusers, match: { users: [eve] }, action: block }\n")
	cfg, err := settings.FromEnvironment(append([]string{"PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0", "RULES=" + rules}, environ...), "sidecar")
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
		if got := call("", "rules", "--server", at); got.code != exitOK || !strings.Contains(got.out, "per-user") {
			return exit(got.code)
		}
		return nil
	})
	return at
}

func TestARunningSidecarIsAsked(t *testing.T) {
	at := operated(t)
	const mallory = `{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"mallory"}]}]}`
	for _, c := range []struct {
		code     int
		says, in string
		args     []string
	}{
		{exitOK, "per-user", "", []string{"usage", "--user", "alice"}},
		{exitOK, "allowed (200) by per-user in shop", mallory, []string{"explain"}},
		{exitOK, "nothing is changed: user mallory in shop", "", []string{"block", "--user", "mallory", "--dry-run"}},
		{exitOK, "allowed (200) by per-user in shop", mallory, []string{"explain"}},
		{exitOK, `"No more." (by local, `, "", []string{"block", "--user", "mallory", "--for", "1h", "--reason", "No more."}},
		{exitFound, "blocked (403) by ", mallory, []string{"explain"}},
		{exitOK, "after:  none", "", []string{"unblock", "--user", "mallory"}},
		{exitOK, `"outcome": "allowed"`, mallory, []string{"explain", "-o", "json"}},
		{exitOK, "no_limit (200) in shop", "", []string{"explain", "/search", "--domain", "shop", "--peer", "192.0.2.7", "--header", "x=y"}},
		{exitOK, "LEFT AFTER", "", []string{"reset", "--user", "alice"}},
		{exitOK, "user alice in shop", "", []string{"pardon", "--user", "alice"}},
		{exitOK, "1 sidecar, all with the same rules", "", []string{"fleet"}},
		{exitOK, "asked for most: no key", "", []string{"top", "--fleet", "--limit", "3"}},
		{exitOK, "after:  tier gold, own limit 100/1m token_bucket burst 200 (by local", "", []string{"tier", "--user", "bob", "--tier", "gold", "--limit", "100/1m,burst=200"}},
		{exitOK, "no rule of the domain \"shop\" names the tier \"gold\"", "", []string{"tier", "--user", "bob", "--tier", "gold"}},
		{exitOK, "after:  none", "", []string{"tier", "--user", "bob", "--tier", "", "--no-limits"}},
		{exitUsage, "must be COUNT/PER", "", []string{"tier", "--user", "bob", "--limit", "many"}},
		{exitServer, "limit 1: per", "", []string{"tier", "--user", "bob", "--limit", "5/soon"}},
		{exitServer, "looks like a path", "", []string{"block", "--user", "/search"}},
		{exitServer, "name whom", "", []string{"reset"}},
		{exitUsage, "RateLimitRequest from standard input", "", []string{"explain"}},
	} {
		got := call(c.in, append(c.args, "--server", at)...)
		if got.code != c.code || !strings.Contains(got.out+got.errors, c.says) {
			t.Errorf("spillway %s: %d\n%s%s\nwant %d with %q", strings.Join(c.args, " "), got.code, got.out, got.errors, c.code, c.says)
		}
	}
}

func TestATokenIsSentAlong(t *testing.T) {
	file := write(t, "tokens", "view vera 0123456789abcdef\n")
	at := "http://127.0.0.1:1"
	if got := call("", "fleet", "--server", at); got.code != exitServer {
		t.Errorf("without a sidecar: %+v", got)
	}
	t.Setenv("SPILLWAY_SERVER", at)
	if got := call("", "fleet"); got.code != exitServer || !strings.Contains(got.errors, "127.0.0.1:1") {
		t.Errorf("SPILLWAY_SERVER is not asked: %+v", got)
	}
	cfg, err := settings.FromEnvironment([]string{"PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0", "ADMIN_TOKEN_FILE=" + file, "RULES=" + write(t, "r.yaml", goodRules)}, "sidecar")
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
	defer func() { cancel(); <-done; s.Close() }()
	at = "http://" + s.Addresses().Debug
	servers.Await(t, "the API", func() error {
		if got := call("", "fleet", "--server", at, "--token-file", write(t, "token", "0123456789abcdef\n")); got.code != exitOK {
			return exit(got.code)
		}
		return nil
	})
	if got := call("", "fleet", "--server", at); got.code != exitServer || !strings.Contains(got.errors, "401") {
		t.Errorf("without the token: %+v", got)
	}
	if got := call("", "fleet", "--server", strings.TrimPrefix(at, "http://")); got.code != exitServer || !strings.Contains(got.errors, "401") {
		t.Errorf("an address without http:// is not asked: %+v", got)
	}
	if got := call("", "block", "--user", "x", "--server", at, "--token-file", write(t, "token", "0123456789abcdef\n")); got.code != exitServer || !strings.Contains(got.errors, "403") {
		t.Errorf("with a token that may view: %+v", got)
	}
}
