package journal

// Bounds of what is remembered of names. An HMAC costs as much as the rest of a row.
const (
	maxNames     = 2048
	maxNameValue = 128 // bytes; the name of a longer one is made each time
)

// names makes the names of identities, and remembers the last ones.
type names struct {
	name  func(kind, value string) string
	known [kinds]map[string][]byte
	count int
}

// of returns the name of an identity, which is not to be changed.
func (n *names) of(kind Kind, value []byte) []byte {
	switch {
	case kind == folded:
		return []byte(Others)
	case len(value) == 0:
		return nil
	}
	if name, known := n.known[kind][string(value)]; known {
		return name
	}
	text := string(value)
	if kind == countedKey {
		text = KeyOf(text)
	}
	name := []byte(n.name(kind.String(), text))
	if len(value) > maxNameValue {
		return name
	}
	if n.count >= maxNames {
		n.count, n.known = 0, [kinds]map[string][]byte{}
	}
	if n.known[kind] == nil {
		n.known[kind] = map[string][]byte{}
	}
	n.known[kind][string(value)] = name
	n.count++
	return name
}

// bare returns the name without its kind.
func (n *names) bare(kind Kind, value []byte) []byte {
	name := n.of(kind, value)
	if head := len(kind.String()) + 1; len(name) > head {
		return name[head:]
	}
	return name
}
