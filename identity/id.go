package identity

// Kind is what an identity is.
type Kind uint8

// The kinds of identities.
const (
	UserID    Kind = iota
	TenantID       // an organisation with users
	APIKeyID       // an API key, by its id
	AddressID      // an address, or a network as 192.0.2.0/24
	idKinds
)

// idWords are the words of the kinds in rule files, in APIs and in keys of Redis.
var idWords = [idKinds]string{UserID: "user", TenantID: "tenant", APIKeyID: "api_key", AddressID: "ip"}

// String is the word of the kind in rule files, in APIs and in keys of Redis.
func (k Kind) String() string {
	if k >= idKinds {
		return "unknown"
	}
	return idWords[k]
}

// ParseKind returns the kind of a word, and whether there is one.
func ParseKind(word string) (Kind, bool) {
	for k, known := range idWords {
		if known == word {
			return Kind(k), true
		}
	}
	return 0, false
}

// ID is one identity: what is known about it, charged to it and written about it is found by kind and name. It is
// comparable, so that it can be the key of a map.
type ID struct {
	Kind Kind
	Name string
}

// String is the kind and the name, for logs and texts.
func (i ID) String() string { return i.Kind.String() + " " + i.Name }
