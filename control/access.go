package control

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spillway-mesh/spillway/admin"
)

// Role is what a caller of the API may do. The zero value may do nothing.
type Role uint8

// The roles. Each may do what those before it may.
const (
	NoRole   Role = iota
	Viewer        // reads
	Operator      // and changes users, API keys and blocks
	Admin         // and changes tiers, publishes rules, and erases identities
)

var roleWords = [...]string{"none", "viewer", "operator", "admin"}

// String is the word of the role.
func (r Role) String() string { return roleWords[min(int(r), len(roleWords)-1)] }

// Token is one who may use the API. Of its token only the digest is known.
type Token struct {
	Name   string
	Role   Role
	Digest [sha256.Size]byte
}

// NewToken makes a token, and returns it with the line that lets the file of tokens know it.
func NewToken(role, name string) (secret, line string, err error) {
	if slices.Index(roleWords[1:], role) < 0 {
		return "", "", fmt.Errorf("the role %q must be viewer, operator or admin", role)
	}
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' }) {
		return "", "", errors.New("the name must be one word, for the audit")
	}
	secret = rand.Text()
	digest := sha256.Sum256([]byte(secret))
	return secret, role + " " + name + " " + hex.EncodeToString(digest[:]), nil
}

// ReadTokens reads a file of tokens: lines of a role, a name and the SHA-256 of a token in hex. Empty lines and those that begin with #
// are left out.
func ReadTokens(path string) ([]Token, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the tokens: %w", err)
	}
	var tokens []Token
	var problems error
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		t, err := parseToken(words)
		if err != nil {
			problems = errors.Join(problems, fmt.Errorf("%s:%d: %w", path, n, err))
			continue
		}
		tokens = append(tokens, t)
	}
	problems = errors.Join(problems, lines.Err())
	if problems == nil && len(tokens) == 0 {
		problems = fmt.Errorf("%s has no token: `spillway control token admin NAME` makes one", path)
	}
	return tokens, problems
}

// parseToken reads one line. An error does not show the digest.
func parseToken(words []string) (Token, error) {
	if len(words) != 3 {
		return Token{}, fmt.Errorf("the line has %d words: write a role, a name and the SHA-256 of a token", len(words))
	}
	role := slices.Index(roleWords[1:], words[0])
	digest, err := hex.DecodeString(words[2])
	switch {
	case role < 0:
		return Token{}, errors.New("the line must begin with viewer, operator or admin")
	case err != nil || len(digest) != sha256.Size:
		return Token{}, errors.New("the third word must be the SHA-256 of a token: 64 hex digits")
	}
	return Token{Name: words[1], Role: Role(role + 1), Digest: [sha256.Size]byte(digest)}, nil
}

// caller is who sends a request, or the problem with it. Without tokens it is this machine alone, which may do everything.
func (a *API) caller(r *http.Request) (string, Role, *admin.Problem) {
	if len(a.Tokens) == 0 {
		c, wrong := admin.Local(r)
		if wrong != nil {
			return "", NoRole, admin.NewProblem(http.StatusForbidden, "without a file of tokens the API answers this machine only, under an address or localhost: set CONTROL_TOKEN_FILE")
		}
		return c.Name, Admin, nil
	}
	sent, given := admin.Bearer(r)
	digest := sha256.Sum256([]byte(strings.TrimSpace(sent)))
	name, role := "", NoRole
	for i := range a.Tokens { // all are compared, so that the time shows nothing
		if subtle.ConstantTimeCompare(a.Tokens[i].Digest[:], digest[:]) == 1 && given {
			name, role = a.Tokens[i].Name, a.Tokens[i].Role
		}
	}
	if role == NoRole {
		return "", NoRole, admin.NewProblem(http.StatusUnauthorized, "the API needs the header authorization: Bearer with a token of CONTROL_TOKEN_FILE")
	}
	return name, role, nil
}
