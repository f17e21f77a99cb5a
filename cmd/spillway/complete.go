package main

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// completeWithin is how long a shell waits for names.
var completeWithin = 300 * time.Millisecond

// offer completes a word by what a server has. One that does not answer in time, or refuses, completes nothing.
func offer(of *server, names func(s *session, begun string) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) (all []string, _ cobra.ShellCompDirective) {
		s, err := start(cmd, of)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(s.ctx, completeWithin)
		defer cancel()
		s.ctx = ctx
		for _, name := range names(s, begun) {
			if strings.HasPrefix(name, begun) && plain(name) == name && !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	}
}

// completion completes the first argument of a verb.
func (n *noun) completion(verb, arguments string, files bool) cobra.CompletionFunc {
	names := n.complete()
	switch {
	case files:
		return ruleFiles
	case strings.HasPrefix(arguments, "[KIND/]") && verb != "rm":
		names = completeNames("users")
	case arguments == "" || n.path == "":
		return cobra.NoFileCompletions
	}
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) == 0:
			return names(cmd, args, begun)
		case len(args) == 1 && strings.HasSuffix(arguments, "[TIER]"):
			return completeNames("tiers")(cmd, args, begun)
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// complete completes by the noun's own list.
func (n *noun) complete() cobra.CompletionFunc {
	return offer(n.api, func(s *session, begun string) (all []string) {
		s.noun = n
		params := url.Values{}
		if n.next != "" {
			params.Set("limit", "50")
		}
		if n.prefix && begun != "" {
			params.Set("prefix", begun)
		}
		for _, one := range objects(s.get(s.path(), params), n.field()) {
			name := n.mark + text(one, cmp.Or(n.key, "name"))
			if n.name == "blocks" {
				name = text(one, "kind") + "/" + name
			}
			all = append(all, name)
		}
		return all
	})
}

// completeNames completes the names of a noun.
func completeNames(name string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		all := nouns()
		at := slices.IndexFunc(all, func(n *noun) bool { return n.name == name })
		return all[at].complete()(cmd, args, begun)
	}
}

// completeDomains completes domains: of the control where one is named, else of the sidecar.
var completeDomains = offer(nil, func(s *session, _ string) (all []string) {
	path, field := "/v1/domains", "domain"
	if s.server == sidecarAPI {
		path, field = "/v1/rules", "name"
	}
	for _, d := range objects(s.get(path, nil), "domains") {
		all = append(all, text(d, field))
	}
	return all
})

// completeRules completes the rules that the sidecar uses.
var completeRules = offer(sidecarAPI, func(s *session, _ string) (all []string) {
	for _, d := range objects(s.get("/v1/rules", nil), "domains") {
		for _, r := range objects(d, "limits") {
			all = append(all, text(r, "rule"))
		}
	}
	return all
})
