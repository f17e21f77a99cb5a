package descriptors

import "slices"

// symbol is one character of a path. A character that needs no escape in a path, and came escaped, has the bit escaped;
// all others are decoded.
type symbol uint16

const escaped symbol = 1 << 8

// keepsEscape holds the characters that a path may contain unescaped, so that a server may distinguish them from their
// escapes, and \. Letters, digits and -._~ are not among them: their escapes mean the same to every server.
var keepsEscape = func() (set [256]bool) {
	for _, c := range []byte("!$&'()*+,;=:@/\\") {
		set[c] = true
	}
	return set
}()

// traits are the parts of a path that servers read in different ways.
type traits uint16

const (
	backslash        traits = 1 << iota // \
	escapedBackslash                    // %5C
	escapedSlash                        // %2F
	otherEscape                         // another character with the bit escaped
	params                              // ; or %3B
	longParams                          // params with \, %5C or %2F in them
	plainDots                           // a segment that is . or .. between slashes as they came
	lateDots                            // one that only cutting params, or another slash, makes . or ..
	host                                // two slashes of / and \ at the start, behind which a URL parser reads a host
	nul

	anySlash = backslash | escapedBackslash | escapedSlash
)

// spell appends the symbols of a path and returns what it holds.
func spell(out []symbol, path string) ([]symbol, traits) {
	var holds traits
	dotted := false
	for i := 0; i < len(path); i++ {
		s := symbol(path[i])
		if s == '%' && isEscape(path[i:]) {
			c := byte(unhex(path[i+1])<<4 | unhex(path[i+2]))
			s = symbol(c)
			if keepsEscape[c] {
				s |= escaped
			}
			i += 2
		}
		holds |= traitsOf(s)
		dotted = dotted || s == '.'
		out = append(out, s)
	}
	holds |= hostTraits(out)
	if dotted {
		holds |= dotTraits(out)
	}
	if holds&params != 0 && holds&anySlash != 0 {
		holds |= paramTraits(out)
	}
	return out, holds
}

// isEscape reports whether the text begins with a percent sign and two hex digits. Any other percent sign means itself.
func isEscape(text string) bool {
	return len(text) > 2 && text[0] == '%' && unhex(text[1]) >= 0 && unhex(text[2]) >= 0
}

func traitsOf(s symbol) traits {
	switch s {
	case '\\':
		return backslash
	case '\\' | escaped:
		return escapedBackslash
	case '/' | escaped:
		return escapedSlash
	case ';':
		return params
	case ';' | escaped:
		return params | otherEscape
	case 0:
		return nul
	}
	if s >= escaped {
		return otherEscape
	}
	return 0
}

// hostTraits returns host for a path that may begin with one, and continues behind it. //x alone is not taken for the
// root.
func hostTraits(path []symbol) traits {
	if len(path) < 2 || !separates(path[0], backslash) || !separates(path[1], backslash) {
		return 0
	}
	named := func(s symbol) bool { return !separates(s, backslash) }
	if !slices.ContainsFunc(withoutHost(path, backslash), named) {
		return 0
	}
	return host
}

// dotTraits returns which dot segments a path has, under any choice: every character that may be a slash ends a
// segment.
func dotTraits(path []symbol) traits {
	var holds traits
	start, plain := 0, true
	for i := 0; i <= len(path); i++ {
		if i < len(path) && !separates(path[i], anySlash) {
			continue
		}
		ends := i == len(path) || path[i] == '/'
		segment := path[start:i]
		if isDots(segment) && plain && ends {
			holds |= plainDots
		} else if isDots(withoutParams(segment)) {
			holds |= lateDots
		}
		start, plain = i+1, ends
	}
	return holds
}

// paramTraits returns longParams for a path that has them.
func paramTraits(path []symbol) traits {
	within := false
	for _, s := range path {
		if s&^escaped == ';' {
			within = true
		}
		if s == '/' {
			within = false
		}
		if within && traitsOf(s)&anySlash != 0 {
			return longParams
		}
	}
	return 0
}

func withoutParams(segment []symbol) []symbol {
	for i, s := range segment {
		if s&^escaped == ';' {
			return segment[:i]
		}
	}
	return segment
}

// isDots reports whether a segment is . or ..
func isDots[T byte | symbol](segment []T) bool {
	return len(segment) > 0 && len(segment) <= 2 && segment[0] == '.' && segment[len(segment)-1] == '.'
}

// separates reports whether a symbol ends a segment where these are slashes, too.
func separates(s symbol, slashes traits) bool { return s == '/' || traitsOf(s)&slashes != 0 }

// withoutHost returns what follows two or more slashes at the start and the host behind them. A parser that follows
// WHATWG takes \ for a slash, one that follows RFC 3986 does not.
func withoutHost(path []symbol, slashes traits) []symbol {
	ends := func(s symbol) bool { return separates(s, slashes&backslash) }
	begin := slices.IndexFunc(path, func(s symbol) bool { return !ends(s) })
	if begin < 0 {
		return nil
	}
	if begin < 2 {
		return path
	}
	length := slices.IndexFunc(path[begin:], ends)
	if length < 0 {
		return nil
	}
	return path[begin+length:]
}

// dotsMayMove reports whether a plain dot segment comes after a segment that a reading splits or drops. Where none
// does, dot segments lead to one place.
func dotsMayMove(path []symbol) bool {
	moves := false
	start := 0
	for i := 0; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			moves = moves || traitsOf(path[i])&anySlash != 0 || i == start && path[i]&^escaped == ';'
			continue
		}
		if moves && isDots(path[start:i]) {
			return true
		}
		start = i + 1
	}
	return false
}

// resolvePlain appends the path without its plain dot segments.
func resolvePlain(out, path []symbol, mode dotMode) []symbol {
	out = append(out, '/')
	start := len(out)
	for _, s := range path {
		if s == '/' {
			out = closeSegment(out, start, mode)
			start = len(out) + 1
		}
		out = append(out, s)
	}
	return closeSegment(out, start, mode)
}

// closeSegment ends the segment that begins at start, behind its slash.
func closeSegment[T byte | symbol](out []T, start int, mode dotMode) []T {
	segment := out[start:]
	switch {
	case len(segment) == 0 && mode == resolveAndMerge:
		return out
	case len(segment) == 0:
		return out[:start-1]
	case mode == leaveDots || !isDots(segment):
		return out
	}
	out = out[:start-1]
	if len(segment) == 1 {
		return out
	}
	for i := len(out) - 1; i >= 0; i-- {
		if out[i] == '/' {
			return out[:i]
		}
	}
	return out[:0]
}

// dropEmpty drops empty segments.
func dropEmpty(out []byte) []byte {
	kept := out[:0]
	for i, c := range out {
		if c != '/' || i+1 < len(out) && out[i+1] != '/' {
			kept = append(kept, c)
		}
	}
	return kept
}
