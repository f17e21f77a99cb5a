package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/spillway-mesh/spillway/descriptors"
)

// compile decodes the files and compiles them together. One broken file refuses the whole set: half of the rules could
// be worse than the rules of yesterday.
func (f *Files) compile(sources []source, documents map[string]Document) Load {
	files := f.decodeAll(sources)
	read := len(files)
	domains, problems := join(files, f.cfg.MergeDomains)
	domains, laid, merged := f.overlay(domains, documents)
	files = append(files, laid...)
	options := f.cfg.Compile
	options.Broken, options.Incomplete = map[descriptors.Pos]bool{}, map[string]bool{}
	for _, d := range files {
		problems = append(problems, d.problems...)
		maps.Copy(options.Broken, d.broken)
		options.Incomplete[d.domain.Name] = options.Incomplete[d.domain.Name] || d.incomplete
	}
	if slices.ContainsFunc(problems, isError) {
		options.Identity = nil // a set that is not published is never asked
	}
	set, more := descriptors.Compile(domains, options)
	problems = append(problems, more...)
	for i := range domains {
		if d := &domains[i]; !options.Incomplete[d.Name] {
			_, published := documents[d.Name]
			problems = append(problems, tierProblems(d, keyTiers(files, d), published)...)
		}
	}
	problems = append(problems, nameless(files, options)...)
	if slices.ContainsFunc(problems, isError) {
		return Load{Problems: arrange(problems), Files: read}
	}
	return Load{Set: set, Problems: arrange(problems), Files: read, Hash: fingerprint(files, set), Published: merged}
}

// keyTiers are the API keys with a tier of the file that has the identity of a domain.
func keyTiers(files []*decoder, of *descriptors.Domain) []descriptors.Account {
	for _, d := range files {
		if d.domain.Identity == of.Identity && len(d.keyTiers) > 0 {
			return d.keyTiers
		}
	}
	return nil
}

// nameless are the problems of files without the name of their domain, each of which is a domain of its own.
func nameless(files []*decoder, options descriptors.Options) (problems []descriptors.Problem) {
	for _, d := range files {
		if d.usable() {
			continue
		}
		d.domain.Name = "?"
		_, more := descriptors.Compile([]descriptors.Domain{d.domain}, options)
		problems = append(problems, more...)
	}
	return problems
}

// fingerprint is a short hash of the text of the rule files and of the set that came of it. The names of the files are
// not in it, so that it is the same wherever they are mounted.
func fingerprint(files []*decoder, set *descriptors.Set) string {
	sum := sha256.New()
	for _, d := range files {
		fmt.Fprintf(sum, "%d\n", len(d.raw))
		sum.Write(d.raw)
	}
	set.Dump(sum)
	return hex.EncodeToString(sum.Sum(nil)[:6])
}

// decodeAll decodes the files, without those that another file names for a purpose of its own, such as key sets.
func (f *Files) decodeAll(sources []source) []*decoder {
	files := make([]*decoder, 0, len(sources))
	named := map[string]bool{}
	for _, s := range sources {
		d := decodeSource(s)
		if _, given := d.given["charge_denied"]; !given {
			d.domain.ChargeDenied = !f.cfg.SpareDenied
		}
		files = append(files, d)
		for _, name := range d.names {
			if !filepath.IsAbs(name) {
				name = filepath.Join(filepath.Dir(s.path), name)
			}
			if filepath.Clean(name) != filepath.Clean(s.path) {
				named[filepath.Clean(name)] = true
			}
		}
	}
	return slices.DeleteFunc(files, func(d *decoder) bool { return named[filepath.Clean(d.file)] })
}

func decodeSource(s source) *decoder {
	if s.err == nil {
		return decode(s.path, s.text)
	}
	d := &decoder{file: s.path}
	d.report(0, 0, "the file cannot be read: "+s.err.Error(), false)
	return d
}

// join makes one list of domains of all files. Files of one domain are merged when that is asked for: their lists
// follow each other in the order of the file names, and a key that is not a list may be in one of them only.
func join(files []*decoder, merge bool) (domains []descriptors.Domain, clashes []descriptors.Problem) {
	var all []*joined
	known := map[string]*joined{}
	for _, d := range files {
		if !d.usable() {
			continue
		}
		if before := known[d.domain.Name]; before != nil && merge {
			clashes = append(clashes, before.merge(d)...)
			continue
		}
		known[d.domain.Name] = &joined{domain: d.domain, given: maps.Clone(d.given)}
		all = append(all, known[d.domain.Name])
	}
	for _, j := range all {
		domains = append(domains, j.domain)
	}
	return domains, clashes
}

// joined is a domain that several files add to.
type joined struct {
	domain descriptors.Domain
	given  map[string]descriptors.Pos // the keys that were given so far, and where
}

// merge adds another file's part of the domain, and returns the conflicts.
func (j *joined) merge(d *decoder) (clashes []descriptors.Problem) {
	to, from := &j.domain, &d.domain
	for _, key := range sorted(settings) {
		pos, given := d.given[key]
		before, twice := j.given[key]
		if given && twice {
			clashes = append(clashes, descriptors.Problem{Pos: pos, Text: fmt.Sprintf(
				"%s of domain %q is given in %s already; keep it in one file", key, clip(to.Name), before.File)})
		}
		if given && !twice {
			j.given[key] = pos
			settings[key](to, from)
		}
	}
	to.Costs = append(to.Costs, from.Costs...)
	to.Rules = append(to.Rules, from.Rules...)
	to.Tree = append(to.Tree, from.Tree...)
	clashes = append(clashes, mergeAccounts(&to.Users, from.Users)...)
	return append(clashes, mergeAccounts(&to.Tenants, from.Tenants)...)
}

// settings are the keys of the top level that are not lists, each with what copies it.
var settings = map[string]func(to, from *descriptors.Domain){
	"charge_denied": func(to, from *descriptors.Domain) { to.ChargeDenied = from.ChargeDenied },
	"co_locate":     func(to, from *descriptors.Domain) { to.CoLocate = from.CoLocate },
	"on_failure":    func(to, from *descriptors.Domain) { to.OnFailure = from.OnFailure },
	"defaults":      func(to, from *descriptors.Domain) { to.Defaults = from.Defaults },
	"penalty":       func(to, from *descriptors.Domain) { to.Penalty = from.Penalty },
	"timezone":      func(to, from *descriptors.Domain) { to.Timezone = from.Timezone },
	"cost_header":   func(to, from *descriptors.Domain) { to.CostHeader = from.CostHeader },
	"headers":       func(to, from *descriptors.Domain) { to.Headers = from.Headers },
	"reset_format":  func(to, from *descriptors.Domain) { to.ResetUnix = from.ResetUnix },
	"attributes":    func(to, from *descriptors.Domain) { to.Attributes = from.Attributes },
	"identity": func(to, from *descriptors.Domain) {
		to.IPv6Prefix, to.Identity, to.Keys = from.IPv6Prefix, from.Identity, from.Keys
	},
}

// mergeAccounts adds users or tenants of another file, each of which may be in one file only.
func mergeAccounts(to *[]descriptors.Account, from []descriptors.Account) (clashes []descriptors.Problem) {
	there := make(map[string]descriptors.Pos, len(*to))
	for _, account := range *to {
		there[account.Name] = account.Pos
	}
	for _, account := range from {
		before, twice := there[account.Name]
		if twice {
			clashes = append(clashes, descriptors.Problem{Pos: account.Pos, Text: fmt.Sprintf(
				"%q is in %s already; keep it in one file", clip(account.Name), before.File)})
			continue
		}
		*to = append(*to, account)
	}
	return clashes
}
