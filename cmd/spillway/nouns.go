package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// noun is a kind of thing that commands work with. The table nouns has one row for each.
type noun struct {
	name, one string // users, user
	about     string
	api       *server  // nil: the truth
	path      string   // of the list: below a domain, unless it begins with a slash
	items     string   // the field of the list in an answer, where it is not the name
	key       string   // the field that names one; empty: name
	next      []string // PARAMETER=FIELD: where the page behind an item begins
	prefix    bool     // the list takes the parameter prefix
	mark      string   // what arguments write before a name
	columns   []column // of a list
	facts     []column // of one; none: columns
	filters   []option // of a list
	fields    []option // of a change
	verbs     []verb
}

// verb is what a command does with a noun. Without run it is one of the verbs that all nouns share.
type verb struct {
	use, short, long, example string
	run                       func(s *session, args []string) error
	flags                     func(cmd *cobra.Command)
	files                     bool // the arguments are files
}

// session is one run of a command that asks a server.
type session struct {
	*client
	*printer
	cmd    *cobra.Command
	noun   *noun
	target *target
}

// start begins a run that asks a server, without one the truth.
func start(cmd *cobra.Command, of *server) (*session, error) {
	p, err := newPrinter(cmd)
	if err != nil {
		return nil, err
	}
	t, err := targetOf(cmd)
	if err != nil {
		return nil, err
	}
	if of == nil {
		of = t.truth()
	}
	c, err := newClient(cmd, t, of)
	return &session{client: c, printer: p, cmd: cmd, target: t}, err
}

// asking is the same run, asking another server.
func (s *session) asking(of *server) (*session, error) {
	c, err := newClient(s.cmd, s.target, of)
	return &session{client: c, printer: s.printer, cmd: s.cmd, noun: s.noun, target: s.target}, err
}

// flag is the value of a flag.
func (s *session) flag(name string) string { return s.cmd.Flag(name).Value.String() }

// is reports whether a flag is given that is true or false.
func (s *session) is(name string) bool {
	f := s.cmd.Flags().Lookup(name)
	return f != nil && f.Value.String() == "true"
}

// shared are the verbs of all nouns.
var shared = map[string]func(s *session, args []string) error{
	"list": listNoun, "show": showNoun, "set": setNoun, "rm": removeNoun,
}

// command makes the command of a noun, with its verbs below it.
func (n *noun) command() *cobra.Command {
	cmd := group(n.name, n.one, n.about, n.about+".")
	for i := range n.verbs {
		cmd.AddCommand(n.verbs[i].command(n))
	}
	return cmd
}

func (v *verb) command(n *noun) *cobra.Command {
	name, arguments, _ := strings.Cut(v.use, " ")
	run := v.run
	if run == nil {
		run = shared[name]
	}
	cmd := &cobra.Command{
		Use: v.use, Short: v.short, Long: v.long, Args: argumentsOf(arguments),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := start(cmd, n.api)
			if err != nil {
				return err
			}
			s.noun = n
			return repeat(cmd, func() error { return run(s, args) })
		},
	}
	if v.example != "" {
		cmd.Example = "  spillway " + n.name + " " + strings.ReplaceAll(v.example, "\n", "\n  spillway "+n.name+" ")
	}
	switch {
	case v.files:
		cmd.ValidArgsFunction = ruleFiles
	case strings.HasPrefix(arguments, "[KIND/]") && name != "rm":
		cmd.ValidArgsFunction = completeNames("users")
	case arguments != "" && n.path != "":
		cmd.ValidArgsFunction = n.complete
	default:
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	switch name {
	case "list":
		addWatch(cmd)
		addOptions(cmd, n.filters)
		if n.next != nil {
			cmd.Flags().Int("limit", 100, "how many")
		}
	case "set":
		addOptions(cmd, n.fields)
		addRevision(cmd)
	case "rm":
		addRevision(cmd)
	}
	if v.flags != nil {
		v.flags(cmd)
	}
	return cmd
}

// argumentsOf counts arguments as a usage writes them: NAME, [NAME] or NAME...
func argumentsOf(usage string) cobra.PositionalArgs {
	least, most := 0, 0
	for _, one := range strings.Fields(usage) {
		most++
		if !strings.HasPrefix(one, "[") {
			least++
		}
		if strings.Contains(one, "...") {
			most = many
		}
	}
	return between(least, most)
}

func addRevision(cmd *cobra.Command) {
	cmd.Flags().Int64("if-match", 0, "revision that it has to be at; 0: the one that the command reads")
}

func addWatch(cmd *cobra.Command) {
	cmd.Flags().Duration("watch", 0, "print it again so often, until Ctrl-C; without a time every 2s")
	cmd.Flags().Lookup("watch").NoOptDefVal = "2s"
}

// repeat runs a command once or, with --watch, again and again. A terminal is cleared before each time.
func repeat(cmd *cobra.Command, run func() error) error {
	flag := cmd.Flags().Lookup("watch")
	if flag == nil || !flag.Changed {
		return run()
	}
	every, _ := cmd.Flags().GetDuration("watch")
	for {
		if isTerminal(cmd.OutOrStdout()) {
			fmt.Fprint(cmd.OutOrStdout(), "\x1b[H\x1b[2J")
		}
		err := run()
		var ended exit
		if err != nil && !errors.As(err, &ended) {
			return err
		}
		select {
		case <-cmd.Context().Done():
			return nil
		case <-time.After(every):
		}
	}
}

// where is a path of the noun, below a domain where it belongs to one.
func (s *session) where(words ...string) (string, error) {
	if !strings.HasPrefix(s.noun.path, "/") {
		return s.inDomain(append(strings.Split(s.noun.path, "/"), words...)...)
	}
	path := s.noun.path
	for _, word := range words {
		path += "/" + url.PathEscape(word)
	}
	return path, nil
}

func listNoun(s *session, _ []string) error {
	path, err := s.where()
	if err != nil {
		return err
	}
	rows, err := s.pages(path, s.parameters(s.noun.filters))
	if err != nil {
		return err
	}
	return s.list(s.noun.field(), rows, s.noun.columns)
}

// field is the field of the list in an answer.
func (n *noun) field() string { return either(n.items, n.name) }

// parameters are those of the flags that are given.
func (s *session) parameters(of []option) url.Values {
	params := url.Values{}
	for _, o := range of {
		if f := s.cmd.Flag(o.flag); f.Changed && f.Value.String() != "" {
			params.Set(o.field, f.Value.String())
		}
	}
	return params
}

// pageOf is how many items one request asks for.
const pageOf = 1000

// pages reads a list page by page, up to the flag limit.
func (s *session) pages(path string, params url.Values) (all []object, err error) {
	left, page := pageOf, s.noun.next != nil
	if page {
		left, err = s.cmd.Flags().GetInt("limit")
	}
	if err == nil && left < 1 {
		err = fmt.Errorf("--limit must be at least 1, not %d", left)
	}
	for err == nil && left > 0 {
		count := min(left, pageOf)
		if page {
			params.Set("limit", strconv.Itoa(count))
		}
		var o object
		o, err = s.object(path, params)
		items := objects(o, s.noun.field())
		all, left = append(all, items...), left-len(items)
		if len(items) < count || !page {
			break
		}
		for _, pair := range s.noun.next {
			name, field, _ := strings.Cut(pair, "=")
			value := text(items[len(items)-1], field)
			if name == "cursor" {
				value = text(o, field)
			}
			if value == "" {
				return all, err
			}
			params.Set(name, value)
		}
	}
	return all, err
}

// object reads the object under a path.
func (c *client) object(path string, params url.Values) (object, error) {
	a, err := c.get(path, params)
	if err != nil {
		return nil, err
	}
	return a.object()
}

// found reads what the arguments name, which has to exist.
func (s *session) found(args []string) (path string, now *answer, err error) {
	path, err = s.where(args...)
	if err != nil {
		return "", nil, err
	}
	now, err = s.look(path)
	if err == nil && now.document == nil {
		err = refused("there is no %s", s.called(args))
	}
	return path, now, err
}

// called is what an error calls the thing that the arguments name.
func (s *session) called(args []string) string {
	all := fmt.Sprintf("%s %q", s.noun.one, strings.Join(args, "/"))
	if s.domain != "" {
		all += fmt.Sprintf(" in the domain %q", s.domain)
	}
	return all
}

func showNoun(s *session, args []string) error {
	_, now, err := s.found(args)
	if err != nil {
		return err
	}
	return s.one(now)
}

// one prints one thing.
func (s *session) one(a *answer) error {
	o, err := a.object()
	if err != nil {
		return err
	}
	if s.noun.facts != nil {
		return s.facts(o, s.noun.facts)
	}
	return s.facts(o, s.noun.columns)
}

// setNoun reads what there is, changes its fields, and writes it back unless another has changed it meanwhile.
func setNoun(s *session, args []string) error {
	path, err := s.where(args...)
	if err != nil {
		return err
	}
	now, err := s.look(path)
	if err != nil {
		return err
	}
	body, err := now.object()
	if err != nil {
		return err
	}
	body = kept(body, s.noun.fields)
	err = s.fill(body, s.noun.fields)
	if err != nil {
		return err
	}
	made, err := s.ask(http.MethodPut, path, body, nil, s.condition(now)...)
	if err != nil {
		return err
	}
	return s.one(made)
}

// kept are the fields of an object that a change has, too, without those that are null or empty.
func kept(o object, fields []option) object {
	body := object{}
	for _, f := range fields {
		if value := o[f.field]; value != nil && value != "" {
			body[f.field] = value
		}
	}
	return body
}

// condition is the header by which a change is made of what was read and nothing else.
func (s *session) condition(now *answer) []string {
	wanted, _ := s.cmd.Flags().GetInt64("if-match")
	switch {
	case wanted > 0:
		return []string{"If-Match", `"` + strconv.FormatInt(wanted, 10) + `"`}
	case now.document == nil:
		return []string{"If-None-Match", "*"}
	}
	return []string{"If-Match", now.etag}
}

func removeNoun(s *session, args []string) error {
	path, now, err := s.found(args)
	if err == nil {
		_, err = s.ask(http.MethodDelete, path, nil, nil, s.condition(now)...)
	}
	if err != nil {
		return err
	}
	what := s.called(args)
	return s.value(object{"removed": what}, func() error {
		s.line("%s is removed", what)
		return nil
	})
}
