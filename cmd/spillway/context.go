package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// place is where a sidecar and a control are, and who asks them.
type place struct {
	Sidecar   string `yaml:"sidecar,omitempty"`
	Control   string `yaml:"control,omitempty"`
	TokenFile string `yaml:"token_file,omitempty"`
	CA        string `yaml:"ca,omitempty"`
	Cert      string `yaml:"cert,omitempty"`
	KeyFile   string `yaml:"key_file,omitempty"`
	Domain    string `yaml:"domain,omitempty"`
}

// address is where a server is, empty where the place does not name it.
func (p *place) address(of *server) string {
	if of == controlAPI {
		return p.Control
	}
	return p.Sidecar
}

// contexts are the named places of the user's file.
type contexts struct {
	Current string            `yaml:"current,omitempty"`
	Named   map[string]*place `yaml:"contexts"`
}

// contextsFile is the name of the user's file, empty where the user has no folder for it.
func contextsFile() string {
	folder, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(folder, "spillway", "config.yaml")
}

func readContexts() (*contexts, error) {
	all := &contexts{Named: map[string]*place{}}
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
	if err != nil {
		return err
	}
	err = os.MkdirAll(filepath.Dir(name), 0o700)
	if err != nil {
		return err
	}
	err = os.WriteFile(name+".new", text, 0o600)
	if err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

func (c *contexts) find(name string) (*place, error) {
	if found := c.Named[name]; found != nil {
		return found, nil
	}
	return nil, fmt.Errorf("there is no context %q: spillway context list shows them", name)
}

// target is the places that a command may ask. The first that names a server decides: flags, then variables, then the
// context. A context that a flag names comes before the variables.
type target struct{ levels []*place }

func targetOf(cmd *cobra.Command) (*target, error) {
	flag := func(name string) string { return cmd.Flag(name).Value.String() }
	flags := &place{
		Sidecar: flag("server"), Control: flag("control"), TokenFile: flag("token-file"),
		CA: flag("ca"), Cert: flag("cert"), KeyFile: flag("key-file"), Domain: flag("domain"),
	}
	variables := &place{Sidecar: os.Getenv("SPILLWAY_SERVER"), Control: os.Getenv("SPILLWAY_CONTROL")}
	all, err := readContexts()
	if err != nil {
		return nil, err
	}
	named := &place{}
	if name := cmp.Or(flag("context"), os.Getenv("SPILLWAY_CONTEXT"), all.Current); name != "" {
		named, err = all.find(name)
	}
	if flag("context") != "" {
		variables = &place{}
	}
	return &target{[]*place{flags, variables, named}}, err
}

// truth is the server that keeps blocks and tiers: the control where one is named, else the sidecar.
func (t *target) truth() *server {
	for _, level := range t.levels {
		switch {
		case level.Control != "":
			return controlAPI
		case level.Sidecar != "":
			return sidecarAPI
		}
	}
	return sidecarAPI
}

// place is where the server is. What a context holds about the caller goes to servers of that context alone.
func (t *target) place(of *server) place {
	flags, found := *t.levels[0], place{}
	for _, level := range t.levels {
		if level.address(of) != "" {
			found = *level
			break
		}
	}
	return place{
		Sidecar: cmp.Or(found.Sidecar, sidecarAPI.usual), Control: cmp.Or(found.Control, controlAPI.usual),
		TokenFile: cmp.Or(flags.TokenFile, found.TokenFile), CA: cmp.Or(flags.CA, found.CA),
		Cert: cmp.Or(flags.Cert, found.Cert), KeyFile: cmp.Or(flags.KeyFile, found.KeyFile),
		Domain: cmp.Or(flags.Domain, found.Domain),
	}
}

func newContext() *cobra.Command {
	cmd := group("context", "", "Name sidecars and controls, and choose which one commands ask",
		`A context names a sidecar, a control, how to reach them, and a domain. The file spillway/config.yaml in the user's
config folder holds them. A flag comes before SPILLWAY_SERVER and SPILLWAY_CONTROL, these come before the context.`)
	list := &cobra.Command{Use: "list", Short: "List the contexts", Args: between(0, 0), RunE: listContexts}
	use := &cobra.Command{
		Use: "use NAME", Short: "Choose the context of the commands that follow", Args: between(1, 1),
		ValidArgsFunction: completeContexts,
		RunE:              func(_ *cobra.Command, args []string) error { return useContext(args[0]) },
	}
	set := &cobra.Command{
		Use: "set NAME", Short: "Make a context, or change what the flags name of one", Args: between(1, 1),
		Long: `set makes a context of the shared flags --server, --control, --token-file, --ca, --cert, --key-file and
--domain, or changes those that are given. The first context is used at once.`,
		Example:           "  spillway context set shop --control https://control.example.com --token-file ~/.spillway-token",
		ValidArgsFunction: completeContexts,
		RunE:              func(cmd *cobra.Command, args []string) error { return setContext(cmd, args[0]) },
	}
	cmd.AddCommand(list, use, set)
	return cmd
}

func listContexts(cmd *cobra.Command, _ []string) error {
	out, err := newPrinter(cmd)
	if err != nil {
		return err
	}
	all, err := readContexts()
	if err != nil {
		return err
	}
	rows := []object{}
	for _, name := range slices.Sorted(maps.Keys(all.Named)) {
		p := all.Named[name]
		rows = append(rows, object{
			"name": name, "current": name == all.Current, "sidecar": p.Sidecar, "control": p.Control, "domain": p.Domain,
			"token_file": p.TokenFile, "ca": p.CA, "cert": p.Cert, "key_file": p.KeyFile,
		})
	}
	return out.list("contexts", rows, columns(`CURRENT current state | NAME name | CONTROL control | SIDECAR sidecar |
		DOMAIN domain | TOKEN FILE token_file wide | CA ca wide | CERT cert wide`))
}

func useContext(name string) error {
	all, err := readContexts()
	if err == nil {
		_, err = all.find(name)
	}
	if err != nil {
		return err
	}
	all.Current = name
	return all.write()
}

func setContext(cmd *cobra.Command, name string) error {
	all, err := readContexts()
	if err != nil {
		return err
	}
	if all.Named == nil {
		all.Named = map[string]*place{}
	}
	if all.Named[name] == nil {
		all.Named[name] = &place{}
	}
	p := all.Named[name]
	for flag, field := range map[string]*string{"server": &p.Sidecar, "control": &p.Control, "domain": &p.Domain} {
		if f := cmd.Flag(flag); f.Changed {
			*field = f.Value.String()
		}
	}
	files := map[string]*string{"token-file": &p.TokenFile, "ca": &p.CA, "cert": &p.Cert, "key-file": &p.KeyFile}
	for flag, field := range files {
		f := cmd.Flag(flag)
		if !f.Changed {
			continue
		}
		*field = f.Value.String()
		if *field != "" { // so that it is found from every folder
			*field, err = filepath.Abs(*field)
		}
		if err != nil {
			return err
		}
	}
	all.Current = cmp.Or(all.Current, name)
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
