package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// place is where a sidecar and a control are, and who asks them. Its keys are placeFlags.
type place map[string]string

// placeFlags are the flags that a context holds, and placeFiles those that name files.
var (
	placeFlags = []string{"server", "control", "domain", "token-file", "ca", "cert", "key-file"}
	placeFiles = placeFlags[3:]
)

// contexts are the named places of the user's file.
type contexts struct {
	Current string           `yaml:"current,omitempty"`
	Named   map[string]place `yaml:"contexts"`
}

// contextsFile is the name of the user's file, empty without HOME and XDG_CONFIG_HOME.
func contextsFile() string {
	folder, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(folder, "spillway", "config.yaml")
}

func readContexts() (*contexts, error) {
	all := &contexts{Named: map[string]place{}}
	text, err := os.ReadFile(contextsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	err = decoder.Decode(all)
	if errors.Is(err, io.EOF) { // an empty file
		err = nil
	}
	if all.Named == nil {
		all.Named = map[string]place{}
	}
	for name, p := range all.Named {
		for key := range p {
			if !slices.Contains(placeFlags, key) {
				err = errors.Join(err, fmt.Errorf("the context %s has %q, which must be one of %v", name, key,
					placeFlags))
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", contextsFile(), err)
	}
	return all, nil
}

// write replaces the file whole.
func (c *contexts) write() error {
	name := contextsFile()
	if name == "" {
		return errors.New("contexts need a folder: set HOME or XDG_CONFIG_HOME")
	}
	text, err := yaml.Marshal(c)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(name), 0o700)
	}
	if err == nil {
		err = os.WriteFile(name+".new", text, 0o600)
	}
	if err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

func (c *contexts) find(name string) (place, error) {
	if c.Named[name] == nil {
		return nil, fmt.Errorf("unknown context %q: spillway context list shows them", name)
	}
	return c.Named[name], nil
}

// target is the places that a command may ask. The first that names a server decides: flags, then variables, then the
// context. A context that a flag names comes before the variables.
type target struct{ levels []place }

func targetOf(cmd *cobra.Command) (*target, error) {
	flags := place{}
	for _, name := range placeFlags {
		flags[name] = cmd.Flag(name).Value.String()
	}
	variables := place{"server": os.Getenv("SPILLWAY_SERVER"), "control": os.Getenv("SPILLWAY_CONTROL")}
	all, err := readContexts()
	if err != nil {
		return nil, err
	}
	asked := cmd.Flag("context").Value.String()
	if asked != "" {
		variables = place{}
	}
	named := place{}
	if name := cmp.Or(asked, os.Getenv("SPILLWAY_CONTEXT"), all.Current); name != "" {
		named, err = all.find(name)
	}
	return &target{[]place{flags, variables, named}}, err
}

// truth is the server that keeps blocks and tiers: the control where one is named, else the sidecar.
func (t *target) truth() *server {
	for _, level := range t.levels {
		switch {
		case level["control"] != "":
			return controlAPI
		case level["server"] != "":
			return sidecarAPI
		}
	}
	return sidecarAPI
}

// place is where the server is. What a context holds about the caller goes to servers of that context alone.
func (t *target) place(of *server) place {
	found := place{of.flag: of.usual}
	for _, level := range t.levels {
		if level[of.flag] != "" {
			found = maps.Clone(level)
			break
		}
	}
	for name, value := range t.levels[0] {
		found[name] = cmp.Or(value, found[name])
	}
	return found
}

func newContext() *cobra.Command {
	cmd := group("context", "", "Name sidecars and controls, and choose which one commands ask",
		`A context names a sidecar, a control, how to reach them, and a domain. The file spillway/config.yaml in the
user's config folder holds them.`)
	list := &cobra.Command{Use: "list", Short: "List the contexts", Args: between(0, 0), RunE: printing(listContexts)}
	use := &cobra.Command{
		Use: "use NAME", Short: "Choose the context of the commands that follow", Args: between(1, 1), RunE: useContext,
		ValidArgsFunction: completeContexts,
	}
	set := &cobra.Command{
		Use: "set NAME", Short: "Make a context, or change what the flags name of one", Args: between(1, 1),
		RunE: setContext,
		Long: `set makes a context of the shared flags --server, --control, --domain, --token-file, --ca, --cert and
--key-file, or changes those that are given. The first context is used at once.`,
		Example:           "  spillway context set shop --control https://control.example.com --token-file token",
		ValidArgsFunction: completeContexts,
	}
	cmd.AddCommand(list, use, set)
	return cmd
}

func listContexts(_ *cobra.Command, out *printer, _ []string) error {
	all, err := readContexts()
	if err != nil {
		return err
	}
	var rows []object
	for _, name := range slices.Sorted(maps.Keys(all.Named)) {
		row := object{"name": name, "current": name == all.Current}
		for key, value := range all.Named[name] {
			row[key] = value
		}
		rows = append(rows, row)
	}
	return out.list("contexts", rows, columns(`CURRENT current state | NAME name | CONTROL control | SIDECAR server |
		DOMAIN domain | TOKEN FILE token-file wide | CA ca wide | CERT cert wide`))
}

func useContext(_ *cobra.Command, args []string) error {
	all, err := readContexts()
	if err != nil {
		return err
	}
	_, err = all.find(args[0])
	if err != nil {
		return err
	}
	all.Current = args[0]
	return all.write()
}

func setContext(cmd *cobra.Command, args []string) error {
	all, err := readContexts()
	if err != nil {
		return err
	}
	p := maps.Clone(all.Named[args[0]])
	if p == nil {
		p = place{}
	}
	for _, name := range placeFlags {
		f := cmd.Flag(name)
		if !f.Changed {
			continue
		}
		p[name] = f.Value.String()
		if p[name] == "" {
			delete(p, name)
		} else if slices.Contains(placeFiles, name) { // so that it is found from every folder
			p[name], err = filepath.Abs(p[name])
		}
		if err != nil {
			return err
		}
	}
	all.Named[args[0]] = p
	all.Current = cmp.Or(all.Current, args[0])
	return all.write()
}

// completeContexts completes names of contexts.
func completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	all, err := readContexts()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(all.Named)), cobra.ShellCompDirectiveNoFileComp
}
