package image

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// stage is one FROM of a Dockerfile with the steps that follow it.
type stage struct {
	base, name string
	steps      []step
}

// step is one instruction, with its continuation lines joined.
type step struct {
	line int
	verb string // in upper case
	args string
}

func (s step) String() string { return fmt.Sprintf("Dockerfile:%d %s %s", s.line, s.verb, s.args) }

// words are the arguments without flags, and the flags by name.
func (s step) words() (words []string, flags map[string]string) {
	flags = map[string]string{}
	for _, word := range strings.Fields(s.args) {
		name, isFlag := strings.CutPrefix(word, "--")
		if !isFlag || len(words) > 0 {
			words = append(words, word)
			continue
		}
		name, value, _ := strings.Cut(name, "=")
		flags[name] = value
	}
	return words, flags
}

// list is an argument in the form ["program", "argument"], which needs no shell. HEALTHCHECK has it after CMD.
func (s step) list(t *testing.T) []string {
	t.Helper()
	var words []string
	at := strings.Index(s.args, "[")
	if at < 0 {
		t.Fatalf("%v: needs a shell, and the image has none", s)
	}
	err := json.Unmarshal([]byte(s.args[at:]), &words)
	if err != nil || len(words) == 0 {
		t.Fatalf("%v: is no list: %v", s, err)
	}
	return words
}

// ourDockerfile is the Dockerfile's build stage and its last one.
func ourDockerfile(t *testing.T) (build, final stage) {
	t.Helper()
	stages := must.Get(parseDockerfile(read(t, "Dockerfile")))(t)
	if len(stages) != 2 || stages[0].name != "build" {
		t.Fatalf("the Dockerfile has stages %v, want one called build and the image's own", stages)
	}
	return stages[0], stages[1]
}

func read(t *testing.T, name string) string {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(servers.Root(t), name)))(t)
	return string(text)
}

func parseDockerfile(text string) ([]stage, error) {
	var stages []stage
	for _, s := range parseSteps(text) {
		if s.verb == "FROM" {
			words, _ := s.words()
			made := stage{base: words[0]}
			if len(words) == 3 && strings.EqualFold(words[1], "as") {
				made.name = words[2]
			}
			stages = append(stages, made)
			continue
		}
		if len(stages) == 0 {
			return nil, fmt.Errorf("%v: stands before the first FROM", s)
		}
		last := &stages[len(stages)-1]
		last.steps = append(last.steps, s)
	}
	return stages, nil
}

func parseSteps(text string) []step {
	var steps []step
	var open bool // the last line ended with a backslash
	line := 0
	for raw := range strings.Lines(text) {
		line++
		raw = strings.TrimSpace(raw)
		if raw == "" || strings.HasPrefix(raw, "#") {
			continue
		}
		body, more := strings.CutSuffix(raw, `\`)
		body = strings.TrimSpace(body)
		if open {
			steps[len(steps)-1].args += " " + body
		} else {
			verb, args, _ := strings.Cut(body, " ")
			steps = append(steps, step{line, strings.ToUpper(verb), strings.TrimSpace(args)})
		}
		open = more
	}
	return steps
}

// one is the stage's only step of a kind.
func (s stage) one(t *testing.T, verb string) step {
	t.Helper()
	var found []step
	for _, step := range s.steps {
		if step.verb == verb {
			found = append(found, step)
		}
	}
	if len(found) != 1 {
		t.Fatalf("the stage from %s has %d steps %s, want one", s.base, len(found), verb)
	}
	return found[0]
}
