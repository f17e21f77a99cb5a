package sidecar

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
)

// readSecret reads a secret from the file that a variable names. The end of its last line does not belong to it.
func readSecret(variable, file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", variable, err)
	}
	secret := strings.TrimRight(string(text), "\r\n")
	if secret == "" {
		return "", fmt.Errorf("%s: %q is empty", variable, file)
	}
	return secret, nil
}

// loginSource is where a user and a password come from: a variable, or the file that its companion names.
type loginSource struct {
	variable string // the companion is called like it, with _FILE at the end
	text     string
	file     string
}

// login is what the source holds at this moment, or otherwise where neither variable is set.
func (c loginSource) login(otherwise login) (login, error) {
	switch {
	case c.text != "" && c.file != "":
		return login{}, fmt.Errorf("%s and %[1]s_FILE are both set: use one of them", c.variable)
	case c.text != "":
		return parseLogin(c.text), nil
	case c.file == "":
		return otherwise, nil
	}
	text, err := readSecret(c.variable+"_FILE", c.file)
	if err != nil {
		return login{}, err
	}
	return parseLogin(text), nil
}

// rotating makes a function that asks the source anew each time, so that a file may change while the sidecar runs. While
// it cannot be read, what it last held stays, at first the given login. hide gets each password before it is used.
func (c loginSource) rotating(first login, log *slog.Logger, hide func(secret string)) func() (user, password string) {
	var last atomic.Pointer[login]
	last.Store(&first)
	hide(first.password)
	return func() (user, password string) {
		now, err := c.login(first)
		if err != nil {
			log.Warn("a password cannot be read; the last one stays", "error", err)
			now = *last.Load()
			return now.user, now.password
		}
		hide(now.password)
		last.Store(&now)
		return now.user, now.password
	}
}

// secrets are what must not appear in a log, whatever writes it there.
func (c *Config) secrets() []string {
	all := append(c.Tracing.secrets(), c.Store.KeySecret)
	for _, r := range []namedRedis{{&c.Redis, "REDIS_"}, {&c.PerSecond, "REDIS_PERSECOND_"}} {
		for _, source := range []loginSource{r.auth(), r.sentinelAuth()} {
			held, _ := source.login(login{}) // an error is reported where the password is used
			all = append(all, source.text, held.password)
		}
		for part := range strings.SplitSeq(r.URL, ",") {
			all = append(all, passwordIn(part))
		}
	}
	return all
}

// passwordIn is the password in a URL, or nothing. It looks at the text alone, because what is no URL may still hold one.
func passwordIn(text string) string {
	at := strings.LastIndexByte(text, '@')
	if at < 0 {
		return ""
	}
	text = text[:at]
	if _, rest, found := strings.Cut(text, "://"); found {
		text = rest
	}
	user, password, both := strings.Cut(text, ":")
	if !both {
		password = user
	}
	return password
}
