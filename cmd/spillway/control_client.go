package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/control/api"
	"github.com/spillway-mesh/spillway/control/database"
)

var aControl = peer{"control", "control", "--control names its API, --server a sidecar"}

// addControl adds the flags that say where the control is, and who asks.
func addControl(cmd *cobra.Command) {
	at := os.Getenv("SPILLWAY_CONTROL")
	if at == "" {
		at = "http://127.0.0.1:8090"
	}
	cmd.Flags().String("control", at, "the API of a control; SPILLWAY_CONTROL sets the default")
	cmd.Flags().String("token-file", "", "file that holds the token, where the control has CONTROL_TOKEN_FILE")
	cmd.Flags().String("ca", "", "file of the authority that signed the control's certificate")
	cmd.Flags().String("cert", "", "file of this client's certificate")
	cmd.Flags().String("key-file", "", "file of its key")
	if cmd.Flags().Lookup("domain") == nil {
		cmd.Flags().String("domain", "", "domain; may be left out where there is one")
	}
}

// addLock adds the flags of a change of what may exist.
func addLock(cmd *cobra.Command) {
	cmd.Flags().Int64("if-match", 0, "revision that it has to be at; 0: the one that the command reads")
	cmd.Flags().Bool("force", false, "change it whatever it is by now")
	cmd.MarkFlagsMutuallyExclusive("if-match", "force")
}

// state is what a control has under a path.
type state struct {
	document json.RawMessage // nil: nothing
	etag     string
}

// read fills in a view of it.
func (s *state) read(view any) error { return understand(s.document, view) }

// hints are what to do about refusals that a control answers to many operations.
var hints = map[int]string{
	http.StatusUnauthorized:         "--token-file names the file of a token",
	http.StatusForbidden:            "a token of a higher role, or one at all, is needed: --token-file names its file",
	http.StatusPreconditionFailed:   "it was changed meanwhile, and nothing was done: look at it and run the command again, or use --force",
	http.StatusPreconditionRequired: "it exists: --if-match names the revision that you have seen, and --force takes any",
}

// askControl sends a request to the control. Headers come as name and value.
func askControl(cmd *cobra.Command, method, path string, body any, params url.Values, headers ...string) (state, error) {
	request, err := requestOf(cmd, aControl, method, path, body, params)
	if err != nil {
		return state{}, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	transport, err := transportOf(cmd)
	if err != nil {
		return state{}, err
	}
	header, document, err := send(&http.Client{Timeout: askWithin, Transport: transport}, request, aControl)
	if err != nil {
		return state{}, hinted(err)
	}
	return state{document, header.Get("ETag")}, nil
}

// hinted adds what to do to the error of a refusal.
func hinted(err error) error {
	var refused *refusal
	if errors.As(err, &refused) && hints[refused.status] != "" {
		return &unreachable{&refusal{refused.status, refused.text + "\n" + hints[refused.status]}}
	}
	return err
}

// missing reports whether an error is that of something that is not there.
func missing(err error) bool {
	var refused *refusal
	return errors.As(err, &refused) && refused.status == http.StatusNotFound
}

// look reads what is under a path; nothing is no error.
func look(cmd *cobra.Command, path string) (state, error) {
	now, err := askControl(cmd, http.MethodGet, path, nil, nil)
	if missing(err) {
		return state{}, nil
	}
	return now, err
}

// find reads what is under a path, which has to be there. The words name it in an error.
func find(cmd *cobra.Command, path, what string, into any) error {
	now, err := look(cmd, path)
	if err != nil {
		return err
	}
	if now.document == nil {
		return &unreachable{fmt.Errorf("there is no %s", what)}
	}
	return now.read(into)
}

// lockOf is the header by which a change is made of what was read and nothing else.
func lockOf(cmd *cobra.Command, now state) []string {
	wanted, _ := cmd.Flags().GetInt64("if-match")
	force, _ := cmd.Flags().GetBool("force")
	switch {
	case wanted > 0:
		return []string{"If-Match", `"` + strconv.FormatInt(wanted, 10) + `"`}
	case force && now.document == nil:
		return nil
	case force:
		return []string{"If-Match", "*"}
	case now.document == nil:
		return []string{"If-None-Match", "*"}
	}
	return []string{"If-Match", now.etag}
}

// place is a path below a domain, of words that may hold anything.
func place(domain string, words ...string) string {
	path := "/v1/domains/" + url.PathEscape(domain)
	for _, word := range words {
		path += "/" + url.PathEscape(word)
	}
	return path
}

// domainOf is the domain of the flag, or the only one.
func domainOf(cmd *cobra.Command) (string, error) {
	if name := cmd.Flag("domain").Value.String(); name != "" {
		return name, nil
	}
	all, err := domainsOf(cmd)
	if err != nil {
		return "", err
	}
	if len(all) == 1 {
		return all[0].Domain, nil
	}
	names := make([]string, len(all))
	for i := range all {
		names[i] = plain(all[i].Domain)
	}
	return "", fmt.Errorf("--domain is missing: %s", either(strings.Join(names, ", "), "no rules are published yet"))
}

// domainsOf is what is in force.
func domainsOf(cmd *cobra.Command) ([]database.Publication, error) {
	now, err := askControl(cmd, http.MethodGet, "/v1/domains", nil, nil)
	if err != nil {
		return nil, err
	}
	var list api.PublicationList
	err = now.read(&list)
	return list.Domains, err
}

// pageOf is how many items one request asks for.
const pageOf = 1000

// pages reads a list page by page, up to the flag limit. One page is a list, and next sets the parameters for the one behind an item.
func pages[L, T any](cmd *cobra.Command, path string, params url.Values, list func(*L) []T, next func(url.Values, *T)) ([]T, error) {
	left, err := cmd.Flags().GetInt("limit")
	if err != nil {
		return nil, err
	}
	if left < 1 {
		return nil, errors.New("--limit must be 1 or more")
	}
	all := []T{}
	for left > 0 {
		count := min(left, pageOf)
		params.Set("limit", strconv.Itoa(count))
		now, err := askControl(cmd, http.MethodGet, path, nil, params)
		if err != nil {
			return nil, err
		}
		var page L
		err = now.read(&page)
		if err != nil {
			return nil, err
		}
		items := list(&page)
		all = append(all, items...)
		left -= len(items)
		if len(items) < count {
			break
		}
		next(params, &items[len(items)-1])
		if params.Has("cursor") && params.Get("cursor") == "" { // the list says that it ends here
			break
		}
	}
	return all, nil
}

// put prints a value: as JSON, or as text by show.
func put[T any](cmd *cobra.Command, value T, show func(io.Writer, T)) error {
	format, err := outputOf(cmd)
	if err != nil {
		return err
	}
	if format == "json" {
		return printJSON(cmd.OutOrStdout(), value)
	}
	show(cleaned{cmd.OutOrStdout()}, value)
	return nil
}

// kept are fields of a document as the body of a change: without those that are null or empty.
func kept(document json.RawMessage, names ...string) (map[string]any, error) {
	var fields map[string]json.RawMessage
	if document != nil {
		err := understand(document, &fields)
		if err != nil {
			return nil, err
		}
	}
	body := map[string]any{}
	for _, name := range names {
		if value := string(fields[name]); value != "" && value != "null" && value != `""` {
			body[name] = fields[name]
		}
	}
	return body, nil
}

// numbers takes flags that are whole numbers, or none, into the body of a change.
func numbers(cmd *cobra.Command, body map[string]any, names ...string) error {
	for _, name := range names {
		f := cmd.Flags().Lookup(name)
		if !f.Changed {
			continue
		}
		field := strings.ReplaceAll(name, "-", "_")
		if f.Value.String() == "none" {
			delete(body, field)
			continue
		}
		n, err := strconv.ParseInt(f.Value.String(), 10, 64)
		if err != nil {
			return fmt.Errorf("--%s is %q and must be a whole number or none", name, f.Value.String())
		}
		body[field] = n
	}
	return nil
}

// facts prints names with values, without those that have none.
func facts(w io.Writer, pairs ...any) {
	t := table{newColumns(w)}
	for i := 0; i+1 < len(pairs); i += 2 {
		if value := fmt.Sprint(pairs[i+1]); value != "" {
			t.row(pairs[i], value)
		}
	}
	t.end()
}

// group makes a command that only holds others.
func group(use, short, long string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Args: known, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(below...)
	return cmd
}
