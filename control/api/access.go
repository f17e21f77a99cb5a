package api

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/reread"
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
	Caller
	Digest [sha256.Size]byte
}

// Caller is who uses the API.
type Caller struct {
	Name    string
	Role    Role
	Domains []string // that it may use; nil: all
}

// limited reports whether there are domains that the caller may not use.
func (c *Caller) limited() bool { return c.Domains != nil }

// may reports whether the caller may use a domain.
func (c *Caller) may(domain string) bool { return !c.limited() || slices.Contains(c.Domains, domain) }

// refuse is the problem of a caller that may not use a domain.
func (c *Caller) refuse(what string) *admin.Problem {
	all := strings.Join(c.Domains, ", ")
	return admin.NewProblem(http.StatusForbidden, "%s may use the domains %s alone, and this is about %s", c.Name, all, what)
}

// NewToken makes a token, and returns it with the line that lets the file of tokens know it. Without domains it is for
// all of them.
func NewToken(role, name string, domains ...string) (secret, line string, err error) {
	secret = rand.Text()
	digest := sha256.Sum256([]byte(secret))
	words := []string{role, name, hex.EncodeToString(digest[:])}
	if len(domains) > 0 {
		words = append(words, strings.Join(domains, ","))
	}
	if slices.ContainsFunc(append(domains, name), func(word string) bool {
		return word == "" || strings.ContainsFunc(word, func(r rune) bool { return r <= ' ' })
	}) {
		return "", "", errors.New("the name, for the audit, and each domain must be one word")
	}
	_, err = parseToken(words)
	if err != nil {
		return "", "", err
	}
	return secret, strings.Join(words, " "), nil
}

// readTokens reads a file of tokens: lines of a role, a name, the SHA-256 of a token in hex and, where it is not for
// all domains, domains with commas between them. Empty lines and those that begin with # are left out.
func readTokens(path string) ([]Token, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("CONTROL_TOKEN_FILE: %w", err)
	}
	tokens := []Token{}
	var problems error
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		t, err := parseToken(words)
		if err != nil {
			problems = errors.Join(problems, fmt.Errorf("CONTROL_TOKEN_FILE: %s:%d: %w", path, n, err))
			continue
		}
		tokens = append(tokens, t)
	}
	return tokens, errors.Join(problems, lines.Err())
}

// OpenTokens reads a file of tokens, again when it changes. Later a file with lines that are wrong is logged, and the
// tokens before it stay. One without a token is taken: it revokes all.
func OpenTokens(path string, log *slog.Logger) (*reread.Files[[]Token], error) {
	files, err := reread.New([]string{path}, func() ([]Token, error) { return readTokens(path) }, func(err error) {
		if err != nil {
			log.Error("tokens cannot be read; those before stay", "error", err)
			return
		}
		log.Info("tokens read again")
	})
	if err == nil && len(files.Current()) == 0 {
		err = fmt.Errorf("CONTROL_TOKEN_FILE: %s is without a token: `spillway control token admin NAME` makes one", path)
	}
	return files, err
}

// parseToken reads one line. An error does not show the digest.
func parseToken(words []string) (Token, error) {
	if len(words) != 3 && len(words) != 4 {
		return Token{}, fmt.Errorf("the line has %d words: write a role, a name, the SHA-256 of a token and, where it is not for all, domains"+
			" with commas between them", len(words))
	}
	role := slices.Index(roleWords[1:], words[0])
	digest, err := hex.DecodeString(words[2])
	switch {
	case role < 0:
		return Token{}, fmt.Errorf("the role %q must be viewer, operator or admin", words[0])
	case err != nil || len(digest) != sha256.Size:
		return Token{}, errors.New("the third word must be the SHA-256 of a token: 64 hex digits")
	}
	t := Token{Caller{Name: words[1], Role: Role(role + 1)}, [sha256.Size]byte(digest)}
	if len(words) == 4 {
		t.Domains = strings.Split(words[3], ",")
		if slices.Contains(t.Domains, "") {
			return Token{}, fmt.Errorf("the domains %q must be names with one comma between them", words[3])
		}
	}
	return t, nil
}

// caller is who sends a request, or the problem with it. Without tokens it is this machine alone, which may do everything.
func (a *API) caller(r *http.Request) (Caller, *admin.Problem) {
	if a.Tokens == nil {
		c, wrong := admin.Local(r)
		if wrong != nil {
			return Caller{}, admin.NewProblem(http.StatusForbidden, "without a file of tokens the API answers this machine only, under an address or localhost: set CONTROL_TOKEN_FILE")
		}
		return Caller{Name: c.Name, Role: Admin}, nil
	}
	sent, given := admin.Bearer(r)
	digest := sha256.Sum256([]byte(strings.TrimSpace(sent)))
	var found Caller
	tokens := a.Tokens()
	for i := range tokens { // all are compared, so that the time shows nothing
		if subtle.ConstantTimeCompare(tokens[i].Digest[:], digest[:]) == 1 && given {
			found = tokens[i].Caller
		}
	}
	if found.Role == NoRole {
		return Caller{}, admin.NewProblem(http.StatusUnauthorized, "the API needs the header authorization: Bearer with a token of CONTROL_TOKEN_FILE")
	}
	return found, nil
}
