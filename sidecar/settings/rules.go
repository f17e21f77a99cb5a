package settings

import (
	"strings"
)

// publishedWord in RULES is the rules that the control plane publishes.
const publishedWord = "redis:"

// Sources returns the file or folder that RULES names, and whether published rules are used. Neither: RUNTIME_ROOT
// counts.
func (r *Rules) Sources() (path string, published bool) {
	if r.Path == publishedWord {
		return "", true
	}
	rest, both := strings.CutPrefix(r.Path, publishedWord+",")
	return rest, both
}

func (r *Rules) validate(p *problems, redis bool) {
	path, published := r.Sources()
	p.unless(!published || redis, "RULES", r.Path, "possible without REDIS_URL, where published rules are")
	p.unless(r.Path == publishedWord || path != "" || !published, "RULES", r.Path,
		"complete: a file or folder follows the comma")
}
