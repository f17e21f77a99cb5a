package settings

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Login is a user and a password. With the zero value connections do not log in.
type Login struct{ User, Password string }

// parseLogin reads a password, or user:password. A password that holds a colon, without a user, is written with a colon
// before it.
func parseLogin(text string) Login {
	user, password, both := strings.Cut(text, ":")
	if !both {
		return Login{Password: text}
	}
	return Login{user, password}
}

// server is one server of a URL. A field is empty where the URL does not set it.
type server struct {
	network, address string
	scheme           string // redis or rediss
	db               string // a number
	login            Login
}

// Target is where the servers of a store are, as read from a URL.
type Target struct {
	Kind      Kind
	Master    string   // of sentinels
	Addresses []string // of servers, or of sentinels
	common    server   // holds for all of them; its address is empty
}

// Network is tcp or unix.
func (t *Target) Network() string { return t.common.network }

// Secured reports whether the servers are reached over TLS.
func (t *Target) Secured() bool { return t.common.scheme == "rediss" }

// DB is the number of the database.
func (t *Target) DB() int {
	n, _ := strconv.Atoi(t.common.db) // parseHost checked it
	return n
}

// Logins returns the login in the URL: it is for the sentinels where the URL names those, else for the servers.
func (t *Target) Logins() (server, sentinel Login) {
	if t.Kind == Sentinel {
		return Login{}, t.common.login
	}
	return t.common.login, Login{}
}

// String returns a text for logs. It holds no secret.
func (t *Target) String() string {
	text := strings.Join(t.Addresses, ",")
	switch {
	case t.common.network == "unix":
		text = "unix://" + text
	case t.Secured():
		text = fmt.Sprintf("rediss://%s/%d", text, t.DB())
	default:
		text = fmt.Sprintf("redis://%s/%d", text, t.DB())
	}
	switch t.Kind {
	case Single:
		return text
	case Sentinel:
		return fmt.Sprintf("sentinel %s at %s", t.Master, text)
	}
	return string(t.Kind) + " at " + text
}

// parseTarget reads a URL of servers of that kind. Its errors never show the text, because it may hold a password.
func parseTarget(kind Kind, text, socketType string) (*Target, error) {
	t := &Target{Kind: kind}
	if kind == Single {
		return t, t.add(text, socketType)
	}
	entries := strings.Split(text, ",")
	first := 0
	if kind == Sentinel {
		t.Master, first = strings.TrimSpace(entries[0]), 1
		if t.Master == "" || strings.ContainsAny(t.Master, ":/@") || len(entries) == 1 {
			return nil, errors.New("not the master's name and its sentinels: use mymaster,host:26379,host:26379")
		}
	}
	for i, entry := range entries[first:] {
		err := t.add(strings.TrimSpace(entry), socketType)
		if err != nil {
			return nil, fmt.Errorf("server %d of %d: %w", i+1, len(entries)-first, err)
		}
	}
	return t, t.check()
}

// add adds one server of the list.
func (t *Target) add(text, socketType string) error {
	if text == "" {
		return errors.New("it is empty: there is a comma too many, or a name is missing")
	}
	port := "6379"
	if t.Kind == Sentinel {
		port = "26379"
	}
	s, err := parseServer(text, socketType, port)
	if err != nil {
		return err
	}
	switch {
	case !agree(&t.common.network, s.network):
		return errors.New("sockets and host:port do not go together in one list")
	case !agree(&t.common.scheme, s.scheme):
		return errors.New("redis:// and rediss:// do not go together: TLS is for all servers of a list or for none")
	case !agree(&t.common.db, s.db):
		return errors.New("the database is another than before: it is the same for all servers of a list")
	case !agree(&t.common.login, s.login):
		return errors.New("user or password is another than before: they are the same for all servers of a list")
	case t.Kind == Ring && slices.Contains(t.Addresses, s.address):
		return errors.New("it was named before: a shard stands once in a ring")
	}
	t.Addresses = append(t.Addresses, s.address)
	return nil
}

// agree reports whether a value of one server equals that of the servers before it. An empty value agrees with every
// value, and the first value that is not empty is kept in have.
func agree[T comparable](have *T, value T) bool {
	var empty T
	if value == empty {
		return true
	}
	if *have == empty {
		*have = value
	}
	return *have == value
}

// check returns an error for what the kind does not allow.
func (t *Target) check() error {
	if t.common.network == "unix" && t.Kind != Ring {
		return fmt.Errorf("a %s answers with addresses of other servers, so its own cannot be sockets: use host:port",
			t.Kind)
	}
	if t.Kind == Cluster && t.DB() != 0 {
		return errors.New("a cluster has database 0 only: remove the number")
	}
	return nil
}

var laterURL = regexp.MustCompile(`,\s*[a-z]+://`)

// isList reports whether a URL names several servers. A comma in a password makes no list.
func isList(text string) bool {
	if laterURL.MatchString(text) {
		return true
	}
	if strings.Contains(text, "://") {
		text = text[strings.LastIndexByte(text, '@')+1:]
	}
	return strings.Contains(text, ",")
}

// parseServer reads one server in any of its forms. port is for a URL without one. A path is a socket with every socket
// type.
func parseServer(text, socketType, port string) (server, error) {
	if !strings.Contains(text, "://") {
		return parsePlain(text, socketType)
	}
	u, err := url.Parse(text)
	if err != nil {
		return server{}, errors.New("not a URL: use host:port, redis://[user:password@]host:port[/db], rediss:// or " +
			"a socket's path; a password's special bytes need percent encoding")
	}
	password, _ := u.User.Password()
	s := server{login: Login{u.User.Username(), password}}
	switch u.Scheme {
	case "unix":
		s.network, s.address = "unix", u.Host+u.Path
		if s.address == "" {
			return s, errors.New("unix:// needs a path, as in unix:///run/redis.sock")
		}
		return s, nil
	case "redis", "rediss":
		s.scheme = u.Scheme
		return parseHost(s, u, port)
	}
	return s, fmt.Errorf("%q is not a scheme: use redis, rediss or unix", u.Scheme)
}

// parsePlain reads host:port, or the path of a socket.
func parsePlain(text, socketType string) (server, error) {
	if strings.HasPrefix(text, "/") || strings.HasPrefix(text, "@") || strings.HasPrefix(text, ".") {
		return server{network: "unix", address: text}, nil
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil && strings.EqualFold(socketType, "unix") {
		return server{network: "unix", address: text}, nil
	}
	if err != nil || !isPort(port) || strings.ContainsAny(host, " \t") {
		return server{}, errors.New("not an address: use host:port, redis://host:port, rediss:// or a socket's path")
	}
	return server{network: "tcp", address: net.JoinHostPort(host, port)}, nil
}

// parseHost reads host, port and database of a redis:// URL.
func parseHost(s server, u *url.URL, port string) (server, error) {
	host := u.Hostname()
	if host == "" {
		host = "localhost"
	}
	if given := u.Port(); given != "" {
		port = given
	}
	if !isPort(port) || strings.Contains(host, ":") && net.ParseIP(host) == nil {
		return s, errors.New("not a host and a port: use redis://host:6379")
	}
	s.network, s.address = "tcp", net.JoinHostPort(host, port)
	if db := strings.Trim(u.Path, "/"); db != "" {
		n, err := strconv.Atoi(db)
		if err != nil || n < 0 {
			return s, fmt.Errorf("%q is not a database: use a number, as in redis://host:6379/0", db)
		}
		s.db = strconv.Itoa(n)
	}
	if u.RawQuery != "" {
		return s, errors.New("parameters after ? are not supported: use REDIS_POOL_SIZE, REDIS_TIMEOUT and REDIS_TLS_*")
	}
	return s, nil
}

func isPort(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n > 0 && n < 1<<16
}
