package admin

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spillway-mesh/spillway/reread"
)

// leastToken is how many bytes a token has at least, so that it cannot be guessed.
const leastToken = 16

// NewTokenFile reads who may use the API from a file, again when it changes, or fails. Later a file that cannot be read
// is reported, and the tokens before it stay.
func NewTokenFile(path string, onError func(error)) (*reread.Files[[]Token], error) {
	read := func() ([]Token, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("ADMIN_TOKEN_FILE: %w", err)
		}
		tokens, err := parseTokens(string(text))
		if err != nil {
			return nil, fmt.Errorf("ADMIN_TOKEN_FILE %s: %w", path, err)
		}
		return tokens, nil
	}
	return reread.New([]string{path}, read, func(err error) {
		if err != nil {
			onError(err)
		}
	})
}

// parseTokens reads lines of a role, a name and a token. Empty lines and those that begin with # are left out.
func parseTokens(text string) ([]Token, error) {
	var tokens []Token
	var problems error
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		t, err := parseToken(strings.Fields(line))
		if err != nil {
			problems = errors.Join(problems, fmt.Errorf("line %d: %w", n, err))
			continue
		}
		tokens = append(tokens, t)
	}
	problems = errors.Join(problems, lines.Err())
	if problems == nil && len(tokens) == 0 {
		problems = errors.New("it has no line with a role, a name and a token, so the API could not be used")
	}
	return tokens, problems
}

// parseToken reads one line. An error does not show the token.
func parseToken(words []string) (Token, error) {
	if len(words) != 3 {
		return Token{}, fmt.Errorf("it has %d words: write a role (view or operate), a name and a token", len(words))
	}
	role, known := ParseRole(words[0])
	if !known {
		return Token{}, errors.New("it must begin with view or operate")
	}
	if len(words[2]) < leastToken {
		return Token{}, fmt.Errorf("the token of %q has %d bytes: make it %d or more", words[1], len(words[2]), leastToken)
	}
	return Token{Caller{words[1], role}, sha256.Sum256([]byte(words[2]))}, nil
}
