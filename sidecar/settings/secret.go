package settings

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
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
	all := append(c.otlpSecrets(), c.Store.KeySecret)
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

// Shown is a variable with its value, as pages may show it.
type Shown struct{ Name, Value string }

// hidden is shown in place of a secret.
const hidden = "(hidden)"

// Shown returns all variables with their values, sorted by name. Secrets are hidden, also where they are a part of a
// value.
func (c *Config) Shown() []Shown {
	secrets := slices.DeleteFunc(c.Secrets(), func(s string) bool { return s == "" })
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	var all []Shown
	whole := reflect.ValueOf(c).Elem()
	for i := range whole.NumField() {
		for field, name := range variables(whole.Type().Field(i)) {
			value := shown(whole.Field(i).FieldByName(field))
			for _, secret := range secrets {
				value = strings.ReplaceAll(value, secret, hidden)
			}
			all = append(all, Shown{name, value})
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
