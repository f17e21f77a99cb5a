package main

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const completeWithin = 300 * time.Millisecond

// offer completes a word by what a server has. One that does not answer in time, or refuses, completes nothing.
func offer(of *server, begun string, cmd *cobra.Command, names func(s *session) []string) []string {
	s, err := start(cmd, of)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, completeWithin)
	defer cancel()
	s.ctx = ctx
	var all []string
	for _, name := range names(s) {
		if strings.HasPrefix(name, begun) && plain(name) == name && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// complete completes the first argument by the noun's own list.
func (n *noun) complete(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return offer(n.api, begun, cmd, func(s *session) []string { return s.names(n, begun) }), cobra.ShellCompDirectiveNoFileComp
}

// names are some names of a noun's list, where it can those that begin so.
func (s *session) names(n *noun, begun string) (all []string) {
	s.noun = n
	path, err := s.where()
	if err != nil {
		return nil
	}
	params := url.Values{}
	if n.next != nil {
		params.Set("limit", "50")
	}
	if n.prefix && begun != "" {
		params.Set("prefix", begun)
	}
	o, _ := s.object(path, params)
	for _, one := range objects(o, n.field()) {
		name := text(one, either(n.key, "name"))
		if n.name == "blocks" {
			name = text(one, "kind") + "/" + name
		}
		all = append(all, n.mark+name)
	}
	return all
}

// completeNames completes the names of a noun.
func completeNames(name string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		all := nouns()
		at := slices.IndexFunc(all, func(n *noun) bool { return n.name == name })
		return all[at].complete(cmd, nil, begun)
	}
}

// completeDomains completes domains: of the control where one is named, else of the sidecar.
func completeDomains(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	return offer(nil, begun, cmd, func(s *session) (all []string) {
		path, field := "/v1/domains", "domain"
		if s.server == sidecarAPI {
			path, field = "/v1/rules", "name"
		}
		o, _ := s.object(path, nil)
		for _, d := range objects(o, "domains") {
			all = append(all, text(d, field))
		}
		return all
	}), cobra.ShellCompDirectiveNoFileComp
}

// completeRules completes the rules that the sidecar uses.
func completeRules(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	return offer(sidecarAPI, begun, cmd, func(s *session) (all []string) {
		o, _ := s.object("/v1/rules", nil)
		for _, d := range objects(o, "domains") {
			for _, r := range objects(d, "limits") {
				all = append(all, text(r, "rule"))
			}
		}
		return all
	}), cobra.ShellCompDirectiveNoFileComp
}
