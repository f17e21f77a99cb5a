package main

import (
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// aboutRatios stands above the first table of ratios.
var aboutRatios = map[string]string{"closed": " A ratio is the median of the rounds' ratios; on a busy machine it " +
	"differs from the ratio of the medians below."}

// aboutTables is printed above the table of a part whose title needs more words.
var aboutTables = map[string]string{
	"global": "What Redis, all sidecars and the load generator take is in percent of one core. The closed loop " +
		"finds what this machine can do. The open loop makes half as many calls, and never more than nine tenths of " +
		"the limit.\n\n",
	"envoy": "Latency counts from the time at which a request was due. The goals are for the whole request, and the " +
		"difference is what the limit adds. Each round is five times as long as others.\n\n",
}

// titles of the parts.
var titles = map[string]string{
	"closed":     "Closed loop, 64 calls in flight, two servers",
	"open":       "Open loop at half of the slower server's capacity, two servers",
	"lone":       "One caller at a time, on one of two servers",
	"four":       "Closed loop, 64 calls in flight, four servers",
	"algorithms": "Spillway's algorithms over 100,000 keys, closed loop, two sidecars",
	"rules":      "Rules by algorithm over 100,000 users, closed loop, two sidecars",
	"memory":     "Memory of 50,000 counters of rules in Redis",
	"strain":     "Decisions without Redis under strain, 100,000 keys, two sidecars",
	"leases":     "Leases off and on, closed loop, 64 calls in flight, two sidecars",
	"global":     "One global limit of 100,000 a second, four sidecars",
	"envoy":      "A request through Envoy, 500 a second",
}

// surroundings are what figures depend on.
type surroundings struct {
	Cores                int
	Processor            string
	Sidecar, Reference   build
	Base                 string // program of the base; empty: none
	Redis                string
	SidecarEnv, OtherEnv []string
	Others               float64 // share of the processors
	Again, All           int     // rounds that were run in place of disturbed ones, and all that count
	Rounds               int
	Seconds              float64
}

// build is what a program was built from.
type build struct{ Go, Module, GRPC string }

// describe looks around.
func (s *session) describe() (surroundings, error) {
	here := surroundings{
		Cores: runtime.NumCPU(), Processor: processorName(), Others: s.others(), Rounds: s.set.Rounds,
		Seconds: s.set.Length.Seconds(), Base: s.set.Base,
		SidecarEnv: s.set.SidecarEnv, OtherEnv: s.set.ReferenceEnv,
	}
	here.Again, here.All = s.again()
	info, err := s.redis.conn.do("INFO server")
	if err != nil {
		return here, err
	}
	_, rest, _ := strings.Cut(info, "redis_version:")
	here.Redis, _, _ = strings.Cut(rest, "\r\n")
	here.Sidecar, err = buildOf(s.set.Sidecar)
	if err != nil {
		return here, err
	}
	here.Reference, err = buildOf(s.set.Reference)
	return here, err
}

func buildOf(program string) (build, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return build{}, err
	}
	b := build{Go: info.GoVersion, Module: info.Main.Version}
	for _, m := range info.Deps {
		if m.Path == "google.golang.org/grpc" {
			b.GRPC = m.Version
		}
	}
	return b, nil
}

// processorName is what Linux calls the processor.
func processorName() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	_, rest, found := strings.Cut(string(text), "model name")
	name, _, _ := strings.Cut(rest, "\n")
	if !found {
		return runtime.GOARCH
	}
	return strings.TrimLeft(name, "\t :")
}

// writePage writes RESULTS.md, and prints what figures depend on.
func (s *session) writePage(out io.Writer) error {
	here, err := s.describe()
	if err != nil {
		return err
	}
	fmt.Fprint(out, here.text())
	err = os.MkdirAll(s.set.Out, 0o755)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.set.Out, "RESULTS.md"), []byte(page(here, s.studies)), 0o644)
}

// page is RESULTS.md.
func page(here surroundings, studies []*study) string {
	var out strings.Builder
	out.WriteString("# Results\n\n")
	out.WriteString("`make bench` writes this page. [README.md](README.md) explains what is measured, and how.\n\n")
	out.WriteString(here.text())
	for _, s := range studies {
		for _, fault := range s.faults() {
			out.WriteString("\n**" + fault + "**\n")
		}
	}
	for _, other := range []struct{ server, text string }{
		{reference, "the reference server"}, {base, "the base"}, {unleased, "itself with `LEASES=false`"},
	} {
		head := "\n## Ratios of Spillway to " + other.text + "\n"
		for _, part := range parts {
			if some := compared(studies, part, other.server); len(some) > 0 {
				out.WriteString(head + "\n" + titles[part] + "." + aboutRatios[part] + "\n\n" +
					ratios(some, other.server).markdown())
				head = ""
			}
		}
	}
	for _, part := range parts {
		if some := of(studies, part); len(some) > 0 {
			out.WriteString("\n## " + titles[part] + "\n\n" + aboutTables[part] + tableFor(part, some...).markdown())
		}
	}
	return out.String()
}

// text is the surroundings as a list.
func (here surroundings) text() string {
	lines := []string{
		fmt.Sprintf("Machine: %d cores, %s. Servers, Redis and the load generator share them.", here.Cores,
			here.Processor),
		fmt.Sprintf("Redis %s.", here.Redis),
		fmt.Sprintf("Spillway: %s, grpc-go %s.%s", here.Sidecar.Go, here.Sidecar.GRPC, extra(here.SidecarEnv)),
		fmt.Sprintf("Reference: envoyproxy/ratelimit %s, %s, grpc-go %s.%s", here.Reference.Module, here.Reference.Go,
			here.Reference.GRPC, extra(here.OtherEnv)),
	}
	if here.Base != "" {
		lines = append(lines, fmt.Sprintf("Base: `%s`, with a Redis of its own.", here.Base),
			fmt.Sprintf("Medians of %d rounds of %g seconds.", here.Rounds, here.Seconds))
	} else {
		lines = append(lines, fmt.Sprintf("Medians of %d rounds of %g seconds; %d in the closed loop of two "+
			"servers, %d where leases have nothing to do.",
			here.Rounds, here.Seconds, 2*here.Rounds, 4*here.Rounds))
	}
	if here.Again > 0 {
		lines = append(lines, fmt.Sprintf("%d rounds beyond these %d do not count: other programs, or the machine's "+
			"host, had more than %.0f %% of the processors in them.", here.Again, here.All, 100*noisy))
	}
	if here.Others > noisy {
		lines = append(lines, fmt.Sprintf("**Other programs, or the machine's host, had %.0f %% of the processors "+
			"in the rounds that count: decisions per second and latencies are noisy.**", 100*here.Others))
	}
	return "- " + strings.Join(lines, "\n- ") + "\n"
}

// noisy is the share of the processors beyond which other programs, and the machine's host, disturb the figures.
const noisy = 0.05

func extra(env []string) string {
	if len(env) == 0 {
		return ""
	}
	return " **Settings that differ from a default run: `" + strings.Join(env, " ") + "`.**"
}
