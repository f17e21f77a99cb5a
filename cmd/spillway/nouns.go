package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
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
	mark      string   // what arguments write before a name
	next      string   // PARAMETER=FIELD: where the page behind an item begins
	prefix    bool     // the list takes the parameter prefix
	columns   []column // of a list
	facts     []column // of one; none: columns
	filters   []option // of a list
	fields    []option // of a change
	verbs     []verb
}

// verb is what a command does with a noun. Without run it is one of the verbs that nouns share.
type verb struct {
	use, short, long, example string
	run                       func(s *session, args []string)
	flags                     func(cmd *cobra.Command)
	files                     bool // the arguments are files
}

// sharedVerbs are those of most nouns.
var sharedVerbs = map[string]func(s *session, args []string){
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
		run = sharedVerbs[name]
	}
	cmd := &cobra.Command{
		Use: v.use, Short: v.short, Long: v.long, Args: argumentsOf(arguments),
		ValidArgsFunction: n.completion(name, arguments, v.files),
		RunE: func(cmd *cobra.Command, args []string) error {
			return repeat(cmd, func() error {
				s, err := start(cmd, n.api)
				if err == nil {
					s.noun = n
					run(s, args)
				}
				return s.err
			})
		},
	}
	if v.example != "" {
		before := "  spillway " + n.name + " "
		cmd.Example = before + strings.ReplaceAll(v.example, "\n", "\n"+before)
	}
	n.addFlags(cmd, name)
	if v.flags != nil {
		v.flags(cmd)
	}
	return cmd
}

// addFlags adds the flags that a verb has with all nouns.
func (n *noun) addFlags(cmd *cobra.Command, verb string) {
	switch verb {
	case "list":
		addWatch(cmd)
		addOptions(cmd, n.filters)
		if n.next != "" {
			cmd.Flags().Int("limit", 100, "how many")
		}
	case "set":
		addOptions(cmd, n.fields)
		addRevision(cmd)
	case "rm":
		addRevision(cmd)
	}
}

// word makes a command of its own of a verb of a noun.
func (n *noun) word(name, use, example string) *cobra.Command {
	for i := range n.verbs {
		if before, _, _ := strings.Cut(n.verbs[i].use, " "); before == name {
			cmd := n.verbs[i].command(n)
			cmd.Use, cmd.Example = use, "  spillway "+strings.ReplaceAll(example, "\n", "\n  spillway ")
			return cmd
		}
	}
	panic("there is no verb " + name)
}

// argumentsOf counts arguments as a usage writes them: NAME, [NAME] or NAME...
func argumentsOf(usage string) cobra.PositionalArgs {
	least, most := 0, 0
	for _, one := range strings.Fields(usage) {
		most++
		if !strings.HasPrefix(one, "[") || strings.HasPrefix(one, "[KIND/]") {
			least++
		}
		if strings.HasSuffix(one, "...") {
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

// field is the field of the list in an answer.
func (n *noun) field() string { return cmp.Or(n.items, n.name) }

func listNoun(s *session, _ []string) {
	params := s.parameters(s.noun.filters) // before a server is asked
	s.rows(s.pages(s.path(), params))
}

// rows prints the noun's list.
func (s *session) rows(rows []object) {
	s.doubt(len(rows) == 0)
	if s.err == nil {
		s.err = s.list(s.noun.field(), rows, s.noun.columns)
	}
}

func showNoun(s *session, args []string) {
	_, now := s.existing(args)
	s.show(now.object)
}

// show prints one of the noun.
func (s *session) show(o object) {
	columns := s.noun.facts
	if columns == nil {
		columns = s.noun.columns
	}
	s.print(o, func() { s.facts(o, columns) })
}

// setNoun reads what there is, changes its fields, and writes it back unless another has changed it meanwhile.
func setNoun(s *session, args []string) {
	path := s.path(args...)
	now := s.look(path)
	body := kept(now.object, s.noun.fields)
	s.fill(body, s.noun.fields)
	s.show(s.ask(http.MethodPut, path, body, nil, s.condition(now)...).object)
}

// kept are the fields of an object that a change has, too, without those that are null or empty.
func kept(o object, fields []option) object {
	body := object{}
	for _, f := range fields {
		if value := o[f.field()]; words(value) != "" {
			body[f.field()] = value
		}
	}
	return body
}

func removeNoun(s *session, args []string) {
	path, now := s.existing(args)
	s.ask(http.MethodDelete, path, nil, nil, s.condition(now)...)
	what := s.called(args)
	s.print(object{"removed": what}, func() { s.line("%s is removed", what) })
}
