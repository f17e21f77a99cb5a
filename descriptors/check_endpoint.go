package descriptors

import (
	"cmp"
	"regexp"
	"strings"
)

// Endpoints that other tools read and patterns take byte for byte.
var (
	likeTemplate = regexp.MustCompile(`\{[^{}/]*\}|<[^<>/]+>|(^|/):[A-Za-z_]`)
	likeRegexp   = regexp.MustCompile(`^\^|\$$|\\|\][+*{]|\([^()]*\|[^()]*\)|\.\+|[^*]/\.\*$`)
)

// rewriting is a way to write what varies, and its form in a pattern.
type rewriting struct {
	from *regexp.Regexp
	to   string
}

func rewrite(text string, steps []rewriting) string {
	for _, s := range steps {
		text = s.from.ReplaceAllString(text, s.to)
	}
	return text
}

var fromTemplate = []rewriting{
	{regexp.MustCompile(`\{(\*[^{}/]*|[^{}/]*(\.\.\.|\*\*|:\.[*+]|:path))\}|<path:[^<>/]+>`), "**"},
	{regexp.MustCompile(`\{[^{}/]*\}|<[^<>/]+>`), "*"},
	{regexp.MustCompile(`(^|/):[A-Za-z_][^/]*`), "${1}*"},
}

var fromRegexp = []rewriting{
	{regexp.MustCompile(`^(\^.*[^*+$])$`), "$1/.*"}, // without an end, it matches what follows as well
	{regexp.MustCompile(`^\^|\$$`), ""},
	{regexp.MustCompile(`\([^()]*\|[^()]*\)|\[[^\]]*\](\{[0-9,]*\}|[*+])?|\\[dwsDWS](\{[0-9,]*\}|[*+])?`), "*"},
	{regexp.MustCompile(`\(([^()]*)\)`), "$1"},
	{regexp.MustCompile(`\\(.)`), "$1"},
	{regexp.MustCompile(`/+\.[*+](/|$)`), "/**$1"},
	{regexp.MustCompile(`\.[*+]`), "*"},
}

// endpoint warns of a pattern that looks like something else, because it is compared byte for byte, and hardly any path
// has those; and of one that has several readings, and it is one of them.
func (c *checker) endpoint(at Pos, text string, taken *pattern) {
	what, instead := "", text
	if likeRegexp.MatchString(instead) {
		what, instead = "a regular expression", rewrite(instead, fromRegexp)
	}
	if likeTemplate.MatchString(instead) {
		what, instead = cmp.Or(what, "a route template"), rewrite(instead, fromTemplate)
	}
	if what == "" {
		var r readings
		if r.load(text); r.several() {
			c.warn(at, "servers read endpoint %q in different ways, and it is taken for %q: write that", text,
				taken.text)
		}
		return
	}
	advice := "write * for what varies within a segment and ** for any number of segments"
	if other, err := parsePattern(instead); err == nil && !strings.ContainsAny(other.text, `\^$()[]{}|<>+`) {
		advice = "did you mean " + quote(other.text) + "?"
	}
	c.warn(at, "endpoint %q looks like %s, and is compared as it stands, so hardly any path matches it: %s", text, what,
		advice)
}

// likePrefix is a pattern of one segment below what is hardly ever followed by one segment: a version, or a word for a
// part of a site. /users/* is not one: what follows is one user.
var likePrefix = regexp.MustCompile(
	`^(.*/)?(v[0-9]+(alpha|beta)?[0-9]*|apis?|rest|rpc|graphql|static|assets|public|private|internal|admin)/\*$`)

// prefixes warns of patterns that look like a prefix and match one segment alone, where no pattern of the domain is
// about what is further below: then its author knows both.
func (c *checker) prefixes(d *Domain) {
	for i := range d.Rules {
		r := &d.Rules[i]
		for _, p := range r.Match.Endpoints {
			prefix := strings.TrimSuffix(p.Text, "*")
			if likePrefix.MatchString(p.Text) && !d.isDeeper(prefix) {
				c.warn(p.Pos.or(r.Pos), "endpoint %q of rule %q matches one segment, so %sa and not %sa/b: if all that "+
					"is below is meant, write %q", p.Text, r.Name, prefix, prefix, prefix+"**")
			}
		}
	}
}

// isDeeper reports whether an endpoint of the domain is about more than one segment below a prefix.
func (d *Domain) isDeeper(prefix string) bool {
	for i := range d.Rules {
		for _, p := range d.Rules[i].Match.Endpoints {
			rest, found := strings.CutPrefix(p.Text, prefix)
			if found && (strings.Contains(rest, "/") || strings.HasPrefix(rest, "**")) {
				return true
			}
		}
	}
	return false
}
