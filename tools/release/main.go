// Command release makes a release of Spillway from its source: programs for four platforms, an SBOM, an image for two
// architectures, the chart, and checksums. The same source, version and Go give the same bytes. It needs Go alone, no
// container engine.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// release is what to make, and from what.
type release struct {
	version   string // with its v
	revision  string // the commit
	made      time.Time
	source    string // the folder of the source
	out       string // the folder of the results
	platforms []platform
}

// platform is what programs are built for.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "_" + p.arch }

// all are the platforms of a release.
var all = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

func main() {
	err := run(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run is the whole program.
func run(args []string) error {
	r, err := parse(args)
	if err != nil {
		return err
	}
	err = r.make()
	if err != nil {
		return err
	}
	fmt.Println(r.out)
	return nil
}

// parse reads the flags, and what they leave out from git.
func parse(args []string) (*release, error) {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	r := &release{}
	flags.StringVar(&r.version, "version", "", "the version, such as v0.2.0")
	flags.StringVar(&r.source, "source", ".", "the folder of the source")
	flags.StringVar(&r.out, "out", "", "the folder to make; it must not exist")
	flags.StringVar(&r.revision, "revision", "", "the commit; unset: git's")
	moment := flags.String("time", os.Getenv("SOURCE_DATE_EPOCH"), "seconds since 1970 that stand in all files; "+
		"unset: the commit's")
	only := flags.String("platforms", "", "some of the platforms, as linux/amd64,linux/arm64; unset: all")
	dirty := flags.Bool("dirty", false, "builds a work tree with changes that are not committed")
	err := flags.Parse(args)
	if err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: everything is a flag", flags.Arg(0))
	}
	err = checkVersion(r.version)
	if err != nil {
		return nil, err
	}
	if r.out == "" {
		return nil, errors.New("-out: name the folder to make")
	}
	r.platforms, err = choose(*only)
	if err != nil {
		return nil, err
	}
	return r, r.date(*moment, *dirty)
}

// checkVersion accepts versions that Go, OCI tags and Helm all accept: v, three numbers, and maybe a pre-release.
func checkVersion(version string) error {
	switch {
	case version == "":
		return errors.New("VERSION is missing: make release VERSION=v0.2.0")
	case !strings.HasPrefix(version, "v") && semver.IsValid("v"+version):
		return fmt.Errorf("VERSION=%s: a version begins with v: use v%s", version, version)
	case !semver.IsValid(version) || semver.Canonical(version) != version:
		return fmt.Errorf("VERSION=%s must be a semantic version such as v0.2.0 or v0.2.0-rc.1, without build metadata",
			version)
	}
	return nil
}

// choose returns the platforms of a list, or all of them.
func choose(list string) ([]platform, error) {
	if list == "" {
		return all, nil
	}
	var chosen []platform
	for name := range strings.SplitSeq(list, ",") {
		system, arch, _ := strings.Cut(name, "/")
		found := false
		for _, p := range all {
			if p == (platform{system, arch}) {
				chosen = append(chosen, p)
				found = true
			}
		}
		if !found {
			return nil, fmt.Errorf("-platforms: %q must be one of %v", name, all)
		}
	}
	return chosen, nil
}

// date fills in the commit and its time.
func (r *release) date(moment string, dirty bool) error {
	if r.revision == "" || moment == "" {
		told, err := r.git("log", "-1", "--format=%H %ct")
		if err != nil {
			return fmt.Errorf("ask git for the commit, or set -revision and -time: %w", err)
		}
		commit, seconds, _ := strings.Cut(told, " ")
		changed, err := r.git("status", "--porcelain")
		if err != nil {
			return err
		}
		if changed != "" && !dirty {
			return fmt.Errorf("the work tree has changes that are not committed; commit them, or use -dirty for a "+
				"trial:\n%s", changed)
		}
		if changed != "" {
			commit += "-dirty"
		}
		if r.revision == "" {
			r.revision = commit
		}
		if moment == "" {
			moment = seconds
		}
	}
	seconds, err := strconv.ParseInt(moment, 10, 64)
	if err != nil || seconds < 0 {
		return fmt.Errorf("-time: %q must be seconds since 1970", moment)
	}
	r.made = time.Unix(seconds, 0).UTC()
	return nil
}

// git runs git in the source and returns what it prints.
func (r *release) git(args ...string) (string, error) {
	out, err := exec.Command("git", append([]string{"-C", r.source}, args...)...).Output()
	return strings.TrimSpace(string(out)), err
}

// make makes all of it beside its place, and moves it there when it is whole.
func (r *release) make() error {
	_, err := os.Stat(r.out)
	if err == nil {
		return fmt.Errorf("%s exists: remove it, or choose another folder", r.out)
	}
	err = os.MkdirAll(filepath.Dir(r.out), 0o755)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(r.out), ".release-")
	if err != nil {
		return err
	}
	return errors.Join(r.fill(work), os.RemoveAll(work))
}

// fill makes the results in a folder for work, and moves them to their place.
func (r *release) fill(work string) error {
	results := filepath.Join(work, "results")
	err := os.Mkdir(results, 0o755)
	if err != nil {
		return err
	}
	programs, err := r.build(filepath.Join(work, "programs"))
	if err != nil {
		return err
	}
	for _, step := range []func([]program, string) error{r.archives, r.chart, r.bill, r.image, r.sums} {
		err = step(programs, results)
		if err != nil {
			return err
		}
	}
	return os.Rename(results, r.out)
}
