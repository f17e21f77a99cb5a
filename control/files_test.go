package control

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// lineOf is a line of a file of tokens.
func lineOf(role, name, secret, domains string) string {
	digest := sha256.Sum256([]byte(secret))
	return strings.TrimSpace(role+" "+name+" "+hex.EncodeToString(digest[:])+" "+domains) + "\n"
}

// rewrite writes a file with a time of its own, so that each change is seen.
func rewrite(t *testing.T, path, text string) {
	t.Helper()
	err := os.WriteFile(path+".new", []byte(text), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestFilesAreReadAgain serves with a file of tokens and a certificate, and changes both: a token that is taken out is
// refused soon, and new connections get the new certificate. A file that is wrong changes nothing, one without a token
// revokes all.
func TestFilesAreReadAgain(t *testing.T) {
	cert, key := servers.Certificate(t)
	tokens := filepath.Join(t.TempDir(), "tokens")
	ann, bob := lineOf("viewer", "ann", "ann's", ""), lineOf("viewer", "bob", "bob's", "")
	rewrite(t, tokens, ann+bob)
	address := servers.FreeAddr(t)
	c := must.Get(New(Config{
		DatabaseURL: "postgres://spillway@" + address + "/none", Listen: "127.0.0.1:0", TokenFile: tokens, Cert: cert,
		Key:   key,
		Redis: redis.Servers{Addresses: []string{address}}, Log: slog.New(slog.DiscardHandler),
	}))(t)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := errors.Join(<-ended, c.Close()); err != nil {
			t.Error(err)
		}
	})
	ask := func(token string) (status int, serial string) {
		anyone := &tls.Config{InsecureSkipVerify: true}
		client := http.Client{Transport: &http.Transport{TLSClientConfig: anyone, DisableKeepAlives: true}}
		url := "https://" + c.Address() + "/v1/openapi.json"
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
		request.Header.Set("Authorization", "Bearer "+token)
		answer := must.Get(client.Do(request))(t)
		answer.Body.Close()
		return answer.StatusCode, hex.EncodeToString(answer.TLS.PeerCertificates[0].Signature)
	}
	await := func(what, token string, want int) {
		t.Helper()
		servers.Await(t, what, func() error {
			if got, _ := ask(token); got != want {
				return fmt.Errorf("%d", got)
			}
			return nil
		})
	}
	await("bob", "bob's", http.StatusOK)
	rewrite(t, tokens, ann)
	await("the end of bob's token", "bob's", http.StatusUnauthorized)
	rewrite(t, tokens, ann+"viewer bob\n")
	c.Reload()
	await("ann, after a file that is wrong", "ann's", http.StatusOK)
	rewrite(t, tokens, "# it is empty\n")
	began := time.Now()
	await("the end of all tokens", "ann's", http.StatusUnauthorized)
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("a token is revoked after %v", took)
	}
	_, before := ask("")
	fresh, freshKey := servers.Certificate(t)
	for from, to := range map[string]string{fresh: cert, freshKey: key} {
		text := must.Get(os.ReadFile(from))(t)
		rewrite(t, to, string(text))
	}
	servers.Await(t, "the new certificate", func() error {
		if _, now := ask(""); now == before {
			return errors.New("it is the old one")
		}
		return nil
	})
}
