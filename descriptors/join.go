package descriptors

import "maps"

// With returns a set with the domains of both. Where both have a domain it is over's, and hidden holds a problem that
// names the place of the other one. Either may be nil.
func (s *Set) With(over *Set) (joined *Set, hidden []Problem) {
	joined = &Set{domains: map[string]*CompiledDomain{}}
	if s != nil {
		maps.Copy(joined.domains, s.domains)
	}
	if over == nil {
		return joined, nil
	}
	for _, name := range over.Domains() {
		if below := joined.domains[name]; below != nil {
			hidden = append(hidden, Problem{
				Pos: below.written.Pos, Warning: true,
				Text: "domain " + quote(name) + " is not used: " + over.domains[name].written.Pos.File +
					" has a domain of that name; rename or remove this one",
			})
		}
		joined.domains[name] = over.domains[name]
	}
	return joined, hidden
}

// Source is the file, or the resource of a management server, that the domain was written in.
func (d *CompiledDomain) Source() string { return d.written.Pos.File }
