package integration

import (
	"strconv"
	"strings"
)

// server is how a kind of application reads the path of a request. The models are wide: where a server has a setting
// that takes more, the setting is on.
type server struct {
	name string
	read func(path string) (string, bool) // false: the server refuses the path
}

var pathServers = []server{
	{"as it came", func(path string) (string, bool) { return path, true }},
	{"go", func(path string) (string, bool) {
		path, ok := unescape(path, "")
		return resolveDots(path), ok
	}},
	{"nginx", func(path string) (string, bool) {
		path, ok := unescape(path, "")
		return resolveDots(path), ok && !strings.Contains(path, "\x00")
	}},
	{"tomcat", func(path string) (string, bool) {
		path, ok := unescape(cutParams(path), "")
		return resolveDots(strings.ReplaceAll(path, `\`, "/")), ok && !strings.Contains(path, "\x00")
	}},
	{"spring, params first", func(path string) (string, bool) {
		path, ok := unescape(cutParams(resolveDots(path)), "/")
		return mergeSlashes(path), ok
	}},
	{"java, decoded first", func(path string) (string, bool) {
		path, ok := unescape(path, "")
		return resolveDots(cutParams(path)), ok
	}},
	{"node, WHATWG", func(path string) (string, bool) {
		path, _ = unescape(cutHost(strings.ReplaceAll(path, `\`, "/")), "/%;\\")
		return resolveDots(path), true
	}},
	{"python and php, RFC 3986", func(path string) (string, bool) {
		if !strings.HasPrefix(path, "///") {
			path = cutHost(path)
		}
		path, ok := unescape(path, "")
		return mergeSlashes(path), ok
	}},
	{"node, express", func(path string) (string, bool) {
		path, ok := unescape(path, "/")
		return mergeSlashes(path), ok
	}},
	{"iis", func(path string) (string, bool) {
		path, _ = unescape(path, "")
		return resolveDots(strings.ReplaceAll(path, `\`, "/")), true
	}},
}

// unescape decodes a path once. Escapes of the characters in kept stay. It returns false for a bad percent, which
// stays, too.
func unescape(path, kept string) (string, bool) {
	var out strings.Builder
	good := true
	for i := 0; i < len(path); i++ {
		if path[i] != '%' {
			out.WriteByte(path[i])
			continue
		}
		c, err := strconv.ParseUint(path[min(i+1, len(path)):min(i+3, len(path))], 16, 8)
		if err != nil || i+3 > len(path) {
			good = false
			out.WriteByte('%')
			continue
		}
		if strings.IndexByte(kept, byte(c)) >= 0 {
			out.WriteString(strings.ToUpper(path[i : i+3]))
		} else {
			out.WriteByte(byte(c))
		}
		i += 2
	}
	return out.String(), good
}

// cutHost cuts the slashes and the host of a path that begins with two slashes.
func cutHost(path string) string {
	if !strings.HasPrefix(path, "//") {
		return path
	}
	host := strings.TrimLeft(path, "/")
	if i := strings.IndexByte(host, '/'); i >= 0 {
		return host[i:]
	}
	return "/"
}

// cutParams cuts the ;params of every segment.
func cutParams(path string) string {
	segments := strings.Split(path, "/")
	for i := range segments {
		segments[i], _, _ = strings.Cut(segments[i], ";")
	}
	return strings.Join(segments, "/")
}

// resolveDots drops empty segments and resolves dot segments.
func resolveDots(path string) string {
	var out []string
	for _, segment := range strings.Split(path, "/") {
		switch segment {
		case "", ".":
		case "..":
			out = out[:max(len(out)-1, 0)]
		default:
			out = append(out, segment)
		}
	}
	return "/" + strings.Join(out, "/")
}

func mergeSlashes(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return path
}
