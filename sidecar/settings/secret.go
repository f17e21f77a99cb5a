package settings

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// readSecret reads a secret from the file that a variable names. Line breaks at the end of the file are not part of it.
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

// LoginSource is where a user and a password come from: a variable, or the file that its companion names.
type LoginSource struct {
	variable string // its companion has _FILE at the end of the name
	text     string
	file     string
}

// Read returns the login that the source holds now. Where neither variable is set it returns otherwise.
func (c LoginSource) Read(otherwise Login) (Login, error) {
	switch {
	case c.text != "" && c.file != "":
		return Login{}, fmt.Errorf("%s and %[1]s_FILE are both set: use one of them", c.variable)
	case c.text != "":
		return parseLogin(c.text), nil
	case c.file == "":
		return otherwise, nil
	}
	text, err := readSecret(c.variable+"_FILE", c.file)
	if err != nil {
		return Login{}, err
	}
	return parseLogin(text), nil
}

// shortestToken is the length from which the value of a header to the management server is taken for a token. Shorter
// ones are words, which the log needs.
const shortestToken = 8

// Secrets are the texts that must not appear in a log.
func (c *Config) Secrets() []string {
	all := append(c.misplaced(), append(c.otlpSecrets(), c.Store.KeySecret)...)
	for _, value := range c.XDS.Headers {
		if len(value) >= shortestToken {
			all = append(all, value)
		}
	}
	for _, r := range []NamedRedis{{&c.Redis, "REDIS_"}, {&c.PerSecond, "REDIS_PERSECOND_"}} {
		server, sentinel := r.LoginSources()
		for _, source := range []LoginSource{server, sentinel} {
			held, _ := source.Read(Login{}) // an error is reported where the password is used
			all = append(all, source.text, held.Password)
		}
		for _, one := range r.urls() {
			all = append(all, passwordIn(one))
		}
	}
	return all
}

// passwordIn returns the password in a URL, or an empty text. It does not parse the URL, because a malformed one may
// hold a password too.
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

const shortestSuspect = 12

// suspect reports whether a value may be a secret in a wrong place: one long word of letters and digits that is not a
// path, or a private key.
func suspect(value string) bool {
	switch {
	case strings.Contains(value, "-----BEGIN"):
		return true
	case len(value) < shortestSuspect || strings.ContainsAny(value, " \t") || strings.ContainsAny(value[:1], "/.@"):
		return false
	}
	letter := strings.ContainsFunc(value, unicode.IsLetter)
	_, err := os.Stat(value)
	return letter && strings.ContainsAny(value, "0123456789") && err != nil
}

// misplaced returns the secrets in a value that is not meant to hold one: the password of a URL and, where the value is
// no text that the log needs, all of it if it may be one.
func misplaced(value string, whole bool) (all []string) {
	password := passwordIn(value)
	if strings.Contains(value, "://") && len(password) > 3 { // shorter ones are in many words
		all = append(all, password)
	}
	if whole && suspect(value) {
		all = append(all, value)
	}
	return all
}

// conceal hides what may be a secret in problems with the variables that are set.
func conceal(problems []string, set map[string]string) []string {
	var secrets []string
	for _, value := range set {
		secrets = append(secrets, misplaced(value, true)...)
	}
	for i := range problems {
		problems[i] = hide(problems[i], secrets)
	}
	return problems
}

// Conceal hides the secrets in a text for people.
func (c *Config) Conceal(text string) string { return hide(text, c.Secrets()) }

// hide writes a word in place of each secret, the longest first: one may be a part of another one.
func hide(text string, secrets []string) string {
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, hidden)
		}
	}
	return text
}

// namesFile are the variables whose value is the name of a file with a secret.
var namesFile = regexp.MustCompile("(_FILE|_CERT|_KEY|CACERT|_CA)$")

// misplaced returns the secrets in values that are not meant to hold one.
func (c *Config) misplaced() (all []string) {
	whole := reflect.ValueOf(c).Elem()
	for i := range whole.NumField() {
		for field, name := range variables(whole.Type().Field(i)) {
			text := shown(whole.Field(i).FieldByName(field))
			all = append(all, misplaced(text, namesFile.MatchString(name))...)
		}
	}
	return all
}

// Shown is a variable with its value, as pages may show it.
type Shown struct{ Name, Value string }

// hidden is shown in place of a secret.
const hidden = "(hidden)"

// Shown returns all variables with their values, sorted by name. Secrets are hidden, also where they are a part of a
// value.
func (c *Config) Shown() []Shown {
	secrets := c.Secrets()
	var all []Shown
	whole := reflect.ValueOf(c).Elem()
	for i := range whole.NumField() {
		for field, name := range variables(whole.Type().Field(i)) {
			all = append(all, Shown{name, hide(shown(whole.Field(i).FieldByName(field)), secrets)})
		}
	}
	slices.SortFunc(all, func(a, b Shown) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// shown writes a value as its variable takes it.
func shown(v reflect.Value) string {
	switch value := v.Interface().(type) {
	case *bool:
		if value == nil {
			return ""
		}
		return fmt.Sprint(*value)
	case SocketMode:
		return fmt.Sprintf("%04o", uint32(value))
	case map[string]string:
		var pairs []string
		for _, name := range slices.Sorted(maps.Keys(value)) {
			pairs = append(pairs, name+":"+value[name])
		}
		return strings.Join(pairs, ",")
	}
	return fmt.Sprint(v.Interface())
}
