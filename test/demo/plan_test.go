package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestInterpolation(t *testing.T) {
	set := func(name string) (string, bool) {
		value, ok := map[string]string{"PORT": "1", "EMPTY": ""}[name]
		return value, ok
	}
	for text, want := range map[string]string{
		"a": "a", "${PORT:-2}:3": "1:3", "${OTHER:-2}:3": "2:3", "${EMPTY:-2}": "2", "${OTHER:-}": "", "${PORT:-2} ${OTHER:-b}": "1 b",
	} {
		got, err := interpolate(text, set)
		if err != nil || got != want {
			t.Errorf("%q becomes %q (%v), want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"$PORT", "${PORT}", "${PORT:?none}", "$$", "${lower:-x}"} {
		if got, err := interpolate(text, set); err == nil {
			t.Errorf("%q becomes %q, want an error", text, got)
		}
	}
}

// plan makes a plan of a compose file with one service.
func plan(t *testing.T, service, config string) (*Plan, error) {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{"c.yaml": "services:\n" + service, "e.yaml": config} {
		err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	c, err := ReadCompose(filepath.Join(folder, "c.yaml"), nothing)
	if err != nil {
		return nil, err
	}
	return NewPlan(c, Programs{Envoy: "/envoy", Redis: "/redis", Sidecar: "/sidecar"}, t.TempDir())
}

const oneEnvoy = "  e: {command: [envoy, -c, /x.yaml], volumes: [./e.yaml:/x.yaml:ro], expose: ['80']}\n"

func TestPlanMovesEverythingToLoopback(t *testing.T) {
	p, err := plan(t, oneEnvoy+"  other: {image: x}\n", "a: {address: 0.0.0.0, port_value: 80}\nb: {address: other, port_value: 9}\n")
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Commands) != 1 || p.Commands[0].Path != "/envoy" || p.Commands[0].Args[0] != "-c" {
		t.Fatalf("the plan is %+v, want Envoy alone", p.Commands)
	}
	got := read(t, p.Commands[0].Args[1])
	want := "a: {address: 127.0.0.1, port_value: " + portOf(p.At("e", 80)) + "}\nb: {address: 127.0.0.1, port_value: 1}\n"
	if got != want {
		t.Errorf("the configuration becomes\n%s, want\n%s", got, want)
	}
}

func TestPlanMovesASidecar(t *testing.T) {
	p, err := plan(t, `  s:
    build: {context: .}
    environment: {RULES: /rules, HOST: 0.0.0.0, GRPC_HOST: 0.0.0.0, REDIS_URL: "r:6379", OTEL_SERVICE_NAME: s, DEBUG_PORT: "7"}
    volumes: [./e.yaml:/rules:ro]
    expose: ["8080", "8081", "7"]
  r: {command: [redis-server, --save, ""], expose: ["6379"]}
`, "")
	if err != nil {
		t.Fatal(err)
	}
	env := p.Commands[0].Env
	for _, want := range []string{
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "REDIS_URL=" + p.At("r", 6379), "PORT=" + portOf(p.At("s", 8080)),
		"GRPC_PORT=" + portOf(p.At("s", 8081)), "DEBUG_PORT=" + portOf(p.At("s", 7)),
	} {
		if !slices.Contains(env, want) {
			t.Errorf("the sidecar's environment lacks %s: %q", want, env)
		}
	}
	if text := strings.Join(env, " "); strings.Contains(text, "OTEL") || strings.Contains(text, "/rules") || strings.Contains(text, "0.0.0.0") {
		t.Errorf("the sidecar's environment keeps what belongs to containers: %q", env)
	}
	if args := p.Commands[1].Args; !slices.Equal(args[:4], []string{"--save", "", "--bind", "127.0.0.1"}) {
		t.Errorf("Redis is started with %q", args)
	}
}

func TestPlanRefusesWhatItWouldGetWrong(t *testing.T) {
	for want, c := range map[string][2]string{
		"e:81 is no service":         {oneEnvoy, "{address: 0.0.0.0, port_value: 81}"},
		"nobody:80 is no service":    {oneEnvoy, "{address: nobody, port_value: 80}"},
		"is not written as":          {oneEnvoy, "address: e\nport_value: 80\n"},
		"is no ./source:/target":     {"  e: {command: [envoy], volumes: [data:/x]}\n", ""},
		"is no address:host:contain": {"  e: {command: [envoy], ports: ['80:80']}\n", ""},
		"which is not exposed":       {"  s: {build: {context: .}, expose: ['8080']}\n", ""},
		"no services":                {"", ""},
	} {
		_, err := plan(t, c[0], c[1])
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q with %q: %v, want an error with %q", c[0], c[1], err, want)
		}
	}
}
