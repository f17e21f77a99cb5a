package rules

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spillway-mesh/spillway/descriptors"
)

// Document is the published rules of one domain, as the control plane puts them into Redis.
type Document struct {
	Domain      string `json:"domain"`
	Version     int64  `json:"version"`             // of the domain's rule set
	Publication int64  `json:"publication"`         // grows with each publication of the domain, also of an old version
	Hash        string `json:"hash"`                // SHA-256 of Text, in hex
	Text        string `json:"text"`                // of a rule file
	Tiers       string `json:"tiers,omitempty"`     // a rule file with the limits of the domain's tiers; empty: none
	Withdrawn   bool   `json:"withdrawn,omitempty"` // the rules were taken out of force: those of the files hold alone
	Canary      int64  `json:"canary,omitempty"`    // a version that a share of the sidecars uses; 0: none
	Share       int    `json:"share,omitempty"`     // of the canary, in percent
	CanaryHash  string `json:"canary_hash,omitempty"`
	CanaryText  string `json:"canary_text,omitempty"`
	Name        string `json:"-" db:"-"` // what problems call it; empty: by its domain and version
}

// For is the document that a sidecar of this name uses: a name is among the first percents of each share, or of larger
// ones alone.
func (d Document) For(sidecar string) Document {
	sum := sha256.Sum256([]byte(sidecar))
	if d.Canary > 0 && int(binary.BigEndian.Uint32(sum[:])%100) < d.Share {
		d.Version, d.Hash, d.Text = d.Canary, d.CanaryHash, d.CanaryText
	}
	d.CanaryHash, d.CanaryText = "", ""
	return d
}

// PublishedKey names the key in Redis of the documents: a hash with a field for each domain.
const PublishedKey = "rules"

// HashText is the Hash of a Document with that text.
func HashText(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// name is what problems call the document.
func (d *Document) name() string {
	return cmp.Or(d.Name, fmt.Sprintf("redis:%s@%d", d.Domain, d.Version))
}

// Merged is what one published document does to the rules of the files.
type Merged struct {
	Document Document
	Files    bool     // the files hold rules of the domain too
	Replaced []string // rules of the files that the document has too, by name
}

// published is the documents that one Files knows. The goroutine of Watch owns it.
type published struct {
	read func() ([]Document, error) // nil: rules are not published
	seen map[string]Document        // newest of each domain
	good map[string]Document        // of each domain the newest that compiled
}

// refresh reads the documents. A domain that Redis no longer has keeps its document, so that a flushed Redis takes no
// rules away.
func (p *published) refresh() error {
	if p.read == nil {
		return nil
	}
	all, err := p.read()
	if err != nil {
		return fmt.Errorf("rules: read the published rules: %w", err)
	}
	if p.seen == nil {
		p.seen = map[string]Document{}
	}
	for _, d := range all {
		p.seen[d.Domain] = d
	}
	return nil
}

// lack is why rules are missing if files are missing, or nil if there are some. unread is why the documents could not
// be read.
func (p *published) lack(unread error) error {
	switch {
	case len(p.seen) > 0:
		return nil
	case unread != nil:
		return unread
	}
	return errors.New("rules: no rules are published yet")
}

// sources are the documents as files, those of one domain in the order in which they are laid over the rule files.
func (d *Document) sources() []source {
	all := []source{{path: d.name(), text: []byte(d.Text)}}
	if d.Tiers != "" {
		all = append(all, source{path: d.name() + "/tiers", text: []byte(d.Tiers)})
	}
	return all
}

// compileAll compiles the files with the published documents. Where a document does not compile, the one before it
// stays.
func (f *Files) compileAll(sources []source) Load {
	p := &f.published
	load := f.compile(sources, p.seen)
	if load.Set != nil || len(p.seen) == 0 {
		p.good = maps.Clone(p.seen)
		return load
	}
	accepted := map[string]Document{}
	var refused []Document
	var problems []descriptors.Problem
	for _, name := range slices.Sorted(maps.Keys(p.seen)) {
		document := p.seen[name]
		alone := f.compile(nil, map[string]Document{name: document})
		if alone.Set == nil {
			refused, problems = append(refused, document), append(problems, alone.Problems...)
			if before, known := p.good[name]; known {
				accepted[name] = before
			}
			continue
		}
		accepted[name] = document
	}
	if len(refused) == 0 {
		return load // the files are at fault, or the two do not fit together
	}
	load = f.compile(sources, accepted)
	load.Refused, load.Problems = refused, arrange(append(load.Problems, problems...))
	if load.Set != nil {
		p.good = accepted
	}
	return load
}

// overlay lays documents over the domains of the files: settings and tables that a document has take the place of those
// of the files, rules and accounts by name.
func (f *Files) overlay(domains []descriptors.Domain, documents map[string]Document) (all []descriptors.Domain,
	decoded []*decoder, merged []Merged) {
	for _, name := range slices.Sorted(maps.Keys(documents)) {
		document := documents[name]
		if document.Withdrawn {
			continue
		}
		parts := f.decodeAll(document.sources())
		m := Merged{Document: document, Replaced: []string{}}
		for i, d := range parts {
			d.checkPublished(name, &document)
			decoded = append(decoded, d)
			at := slices.IndexFunc(domains, func(one descriptors.Domain) bool { return one.Name == d.domain.Name })
			switch {
			case !d.usable():
			case at < 0:
				domains = append(domains, d.domain)
			default:
				m.Files = m.Files || i == 0
				replaced := lay(&domains[at], d)
				if i == 0 {
					m.Replaced = append(m.Replaced, replaced...)
				}
			}
		}
		merged = append(merged, m)
	}
	return domains, decoded, merged
}

// checkPublished reports what a published document must not be.
func (d *decoder) checkPublished(domain string, of *Document) {
	if d.usable() && d.domain.Name != domain {
		d.report(1, 1, fmt.Sprintf("the rules are published for the domain %q and name the domain %q; make the two "+
			"the same", clip(domain), clip(d.domain.Name)), false)
	}
	if of.Hash != HashText(of.Text) {
		d.report(0, 0, "the hash is not that of the text; publish the rules again", false)
	}
	for _, name := range d.names {
		d.report(0, 0, fmt.Sprintf("published rules name the file %q, which sidecars need not have; use an https URL",
			clip(name)), false)
	}
}

// lay lays the domain of a document over one, and returns the names of the rules that it replaces.
func lay(to *descriptors.Domain, d *decoder) (replaced []string) {
	from := &d.domain
	for key, set := range settings {
		if _, given := d.given[key]; given {
			set(to, from)
		}
	}
	if _, given := d.given["costs"]; given {
		to.Costs = from.Costs
	}
	if _, given := d.given["descriptors"]; given {
		to.Tree = from.Tree
	}
	to.Rules, replaced = over(to.Rules, from.Rules, func(r *descriptors.Rule) string { return r.Name })
	to.Users, _ = over(to.Users, from.Users, func(a *descriptors.Account) string { return a.Name })
	to.Tenants, _ = over(to.Tenants, from.Tenants, func(a *descriptors.Account) string { return a.Name })
	return replaced
}

// over returns a list in which items take the place of those of the same name, and others are added. It returns the
// names that were there. A name that is in items twice is added twice, for the compiler to refuse.
func over[T any](list, items []T, name func(*T) string) (all []T, replaced []string) {
	all = slices.Clone(list)
	places := map[string]int{}
	for i := range all {
		places[name(&all[i])] = i
	}
	for i := range items {
		at, there := places[name(&items[i])]
		if !there {
			all = append(all, items[i])
			continue
		}
		all[at] = items[i]
		replaced = append(replaced, name(&items[i]))
		delete(places, name(&items[i]))
	}
	return all, replaced
}

// CheckPublished compiles a document as a sidecar without files does. The Load has all that is wrong with it.
func CheckPublished(cfg FilesConfig, document Document) Load {
	cfg.Path, cfg.RuntimeRoot = "", ""
	return NewFiles(cfg).compile(nil, map[string]Document{document.Domain: document})
}

// addTo adds the documents to a digest.
func (p *published) addTo(add func(text []byte)) {
	documents := slices.SortedFunc(maps.Values(p.seen), func(a, b Document) int {
		return cmp.Compare(a.Domain, b.Domain)
	})
	for _, d := range documents {
		add(fmt.Appendf(nil, "%s %d %d %s", d.Domain, d.Version, d.Publication, d.Hash))
		add([]byte(d.Text))
		add([]byte(d.Tiers))
	}
}
