package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// asked is a server that notes who asks it for what.
func asked(t *testing.T) (string, func() string) {
	t.Helper()
	last := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		last = r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization")
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte(`{"detail":"no"}`))
	}))
	t.Cleanup(server.Close)
	return server.URL, func() string {
		was := last
		last = ""
		return was
	}
}

// TestWhereAVerbGoes: a flag comes before a variable, a variable before the context. block goes to the control where
// one is named, else to the sidecar, and the token of a context to its servers alone.
func TestWhereAVerbGoes(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	sidecar, atSidecar := asked(t)
	control, atControl := asked(t)
	token := write(t, "token", "secret\n")
	for _, line := range []string{
		"context set alone --server " + sidecar + " --domain shop",
		"context set whole --server " + sidecar + " --control " + control + " --domain shop --token-file " + token,
	} {
		if got := call("", strings.Fields(line)...); got.code != exitOK {
			t.Fatalf("%s: %+v", line, got)
		}
	}
	const atControls, atSidecars = "GET /v1/domains/shop/blocks/user/ann", "POST /v1/block"
	for _, c := range []struct{ server, control, context, line, wantControl, wantSidecar string }{
		{"", "", "", "block ann", "", atSidecars + " "},
		{"", "", "whole", "block ann", atControls + " Bearer secret", ""},
		{"", "", "", "block ann --context whole", atControls + " Bearer secret", ""},
		{sidecar, "", "whole", "block ann", "", atSidecars + " "},
		{"", control, "alone", "block ann --domain shop", atControls + " ", ""},
		{sidecar, control, "", "block ann --domain shop", atControls + " ", ""},
		{"", control, "", "block ann --server " + sidecar, "", atSidecars + " "},
		{sidecar, "", "", "block ann --context whole", atControls + " Bearer secret", ""},
		{"", "", "whole", "reset ann", "", "POST /v1/reset Bearer secret"},
		{"", "", "whole", "tier ann gold", "GET /v1/domains/shop/users/ann Bearer secret", ""},
		{sidecar, control, "", "users set ann --tier gold --domain shop", "GET /v1/domains/shop/users/ann ", ""},
		{sidecar, control, "alone", "users set ann --tier gold --domain shop", "GET /v1/domains/shop/users/ann ", ""},
		{"", "", "whole", "users set ann --tier gold", "GET /v1/domains/shop/users/ann Bearer secret", ""},
		{"", "", "whole", "unblock ann", atControls + " Bearer secret", ""},
	} {
		t.Setenv("SPILLWAY_SERVER", c.server)
		t.Setenv("SPILLWAY_CONTROL", c.control)
		t.Setenv("SPILLWAY_CONTEXT", c.context)
		got := call("", strings.Fields(c.line)...)
		if got.code != exitServer || atControl() != c.wantControl || atSidecar() != c.wantSidecar {
			t.Errorf("%s with %+v goes elsewhere: %+v", c.line, c, got)
		}
	}
}

func TestContexts(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", folder)
	for _, c := range []struct {
		code       int
		says, line string
	}{
		{exitOK, "CURRENT  NAME", "context list"},
		{exitOK, "", "context set one --control http://one"},
		{exitOK, "", "context set two --control http://two --ca ca.pem"},
		{exitOK, "yes      one   http://one", "context list"},
		{exitUsage, `unknown context "three"`, "context use three"},
		{exitOK, "", "context use two"},
		{exitOK, "yes      two   http://two", "context list"},
		{exitOK, "", "context set two --ca= --domain shop"},
		{exitOK, `"domain": "shop"`, "context list -o json"},
		{exitOK, "two\n", "__complete context use t"},
	} {
		got := call("", strings.Fields(c.line)...)
		if got.code != c.code || !strings.Contains(got.out+got.errors, c.says) {
			t.Errorf("spillway %s: %+v, want %d with %q", c.line, got, c.code, c.says)
		}
	}
	about, err := os.Stat(folder + "/spillway/config.yaml")
	if err != nil || about.Mode().Perm() != 0o600 {
		t.Errorf("others may read the file: %v, %v", about, err)
	}
	err = os.WriteFile(folder+"/spillway/config.yaml", []byte("contexts: {a: {kontrol: x}}\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if got := call("", "top"); got.code != exitUsage || !strings.Contains(got.errors, "kontrol") {
		t.Errorf("an unknown key: %+v", got)
	}
}

// TestNamesAreCompleted by the noun's own list. A server that refuses completes nothing.
func TestNamesAreCompleted(t *testing.T) {
	control := answering(t, map[string]string{
		"/v1/domains":               `{"domains":[{"domain":"shop"},{"domain":"api"}]}`,
		"/v1/domains/shop/users":    `{"users":[{"name":"ann"},{"name":"bob"}]}`,
		"/v1/domains/shop/blocks":   `{"blocks":[{"kind":"ip","name":"192.0.2.7"}]}`,
		"/v1/domains/shop/tiers":    `{"tiers":[{"name":"gold"}]}`,
		"/v1/domains/shop/versions": `{"versions":[{"version":12}]}`,
		"/v1/questions":             `{"questions":[{"name":"refusals"}]}`,
	})
	sidecar := answering(t,
		map[string]string{"/v1/rules": `{"domains":[{"name":"edge","limits":[{"rule":"per-user"}]}]}`})
	for line, want := range map[string]string{
		"users show a": "ann\n", "block a": "ann\n", "blocks rm i": "ip/192.0.2.7\n", "rules export @": "@12\n",
		"reports show r": "refusals\n", "keys create k --user b": "bob\n", "top --rule p": "per-user\n",
		"keys show k": ":4", "tier ann g": "gold\n", "events list --outcome m": "allowed\n",
	} {
		args := append([]string{"__complete"}, strings.Fields(line)...)
		last := args[len(args)-1]
		args = append(args[:len(args)-1], "--domain", "shop", "--control", control, "--server", sidecar)
		if strings.HasPrefix(args[len(args)-7], "--") { // a flag stays before its value
			flag := args[len(args)-7]
			args = append(append(args[:len(args)-7], args[len(args)-6:]...), flag)
		}
		if got := call("", append(args, last)...); !strings.HasPrefix(got.out, want) {
			t.Errorf("completing %q offers %q, want %q", line, got.out, want)
		}
	}
	for server, want := range map[string]string{
		"--control=" + control: "shop\napi\n", "--server=" + sidecar: "edge\n",
	} {
		if got := call("", "__complete", "users", "list", server, "--domain", ""); !strings.HasPrefix(got.out, want) {
			t.Errorf("domains of %s: %q", server, got.out)
		}
	}
}
