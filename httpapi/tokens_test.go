package httpapi

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
)

var (
	digests = TokenFile{Variable: "TOKENS", Roles: Roles{"viewer", "operator", "admin"}, Digests: true}
	plain   = TokenFile{Variable: "TOKENS", Roles: Roles{"view", "operate"}}
)

// TestTokenLines reads what New writes, and refuses lines that are wrong without showing the digest.
func TestTokenLines(t *testing.T) {
	secret, line, err := digests.New("operator", "ann", "shop", "shop-test")
	token, wrong := digests.parse(strings.Fields(line))
	good := token.Role == Operate && token.Name == "ann" && token.Digest == sha256.Sum256([]byte(secret))
	if err != nil || wrong != nil || !good || !token.May("shop-test") || token.May("other") || token.May("") {
		t.Errorf("%q is read as %v: %v, %v", line, token.Caller, err, wrong)
	}
	for _, args := range [][]string{
		{"root", "ann"}, {"admin", ""}, {"admin", "a b"}, {"admin", "ann", ""}, {"admin", "ann", "a b"},
	} {
		if _, _, err = digests.New(args[0], args[1], args[2:]...); err == nil {
			t.Errorf("a token of %q is made", args)
		}
	}
	digest := strings.Fields(line)[2]
	for _, text := range []string{
		"root ann " + digest, "admin ann", "admin ann " + digest[1:], "admin ann " + digest + " a,,b",
		"admin ann " + digest + " a b",
	} {
		_, err = digests.parse(strings.Fields(text))
		if err == nil || strings.Contains(err.Error(), digest[1:]) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestBadTokenFiles refuses files without a caller, and shows no token of a line that is wrong.
func TestBadTokenFiles(t *testing.T) {
	for text, want := range map[string]string{
		"": "must have a line", "# none\n\n": "must have a line", "operate olga": "not 2 words",
		"root olga 0123456789abcdef": "view or operate", "view vera short": "16 bytes or more",
	} {
		path := filepath.Join(t.TempDir(), "tokens")
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := plain.Open(path, func(error) {})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "short") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
