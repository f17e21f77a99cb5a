package httpapi

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spillway-mesh/spillway/httpapi/reread"
)

// leastToken is how many bytes a token has at least, so that it cannot be guessed.
const leastToken = 16

// TokenFile is how a file of tokens is written: lines of a role, a name and a token. Empty lines and those that begin
// with # are left out.
type TokenFile struct {
	Variable string // that names the file
	Roles    Roles
	// In place of a token it has its SHA-256 in hex and, where it is not for all, domains with commas between them.
	Digests bool
	Make    string // the command that makes a token, for advice
}

// Open reads a file, again when it changes. One that holds no token, or a wrong line, is an error. Later a file with a
// wrong line changes nothing, and one without a token revokes all; onRead gets why, or nil.
func (f TokenFile) Open(path string, onRead func(error)) (*reread.Files[[]Token], error) {
	files, err := reread.New([]string{path}, func() ([]Token, error) { return f.read(path) }, onRead)
	if err == nil && len(files.Current()) == 0 {
		err = fmt.Errorf("%s: %s must have a line with a role, a name and a token%s", f.Variable, path, f.Make)
	}
	return files, err
}

func (f TokenFile) read(path string) ([]Token, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Variable, err)
	}
	tokens := []Token{}
	var problems error
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		t, err := f.parse(words)
		if err != nil {
			problems = errors.Join(problems, fmt.Errorf("%s: %s:%d: %w", f.Variable, path, n, err))
			continue
		}
		tokens = append(tokens, t)
	}
	return tokens, errors.Join(problems, lines.Err())
}

// parse reads one line. An error does not show the token or its digest.
func (f TokenFile) parse(words []string) (Token, error) {
	most := 3
	if f.Digests {
		most = 4
	}
	if len(words) < 3 || len(words) > most {
		return Token{}, fmt.Errorf("the line must have a role, a name and a token, not %d words", len(words))
	}
	t := Token{Caller: Caller{Name: words[1], Role: f.Roles.Parse(words[0])}}
	if t.Role == NoRole {
		return Token{}, fmt.Errorf("the role %q must be %s", words[0], strings.Join(f.Roles, " or "))
	}
	if len(words) > 3 {
		t.Domains = strings.Split(words[3], ",")
	}
	if slices.Contains(t.Domains, "") {
		return Token{}, fmt.Errorf("the domains %q must be names with one comma between them", words[3])
	}
	var err error
	t.Digest, err = f.digest(words[2])
	return t, err
}

// digest is the digest of a token, which a word of a line is, or which it is of.
func (f TokenFile) digest(word string) (digest [sha256.Size]byte, err error) {
	if !f.Digests {
		if len(word) < leastToken {
			return digest, fmt.Errorf("the token must have %d bytes or more, not %d", leastToken, len(word))
		}
		return sha256.Sum256([]byte(word)), nil
	}
	decoded, err := hex.DecodeString(word)
	if err != nil || len(decoded) != sha256.Size {
		return digest, errors.New("the third word must be the SHA-256 of a token: 64 hex digits")
	}
	return [sha256.Size]byte(decoded), nil
}

// New makes a token, and returns it with its line in a file of digests. Without domains it is for all of them.
func (f TokenFile) New(role, name string, domains ...string) (secret, line string, err error) {
	secret = rand.Text()
	digest := sha256.Sum256([]byte(secret))
	words := []string{role, name, hex.EncodeToString(digest[:])}
	if len(domains) > 0 {
		words = append(words, strings.Join(domains, ","))
	}
	if slices.ContainsFunc(append(slices.Clone(domains), name), func(word string) bool {
		return word == "" || strings.ContainsFunc(word, func(r rune) bool { return r <= ' ' })
	}) {
		return "", "", errors.New("the name, for the audit, and each domain must be one word")
	}
	_, err = f.parse(words)
	if err != nil {
		return "", "", err
	}
	return secret, strings.Join(words, " "), nil
}
