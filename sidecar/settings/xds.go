package settings

import (
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// XDS is the management server that rules come from with CONFIG_TYPE=GRPC_XDS_SOTW. The files are read again for each
// connection.
type XDS struct {
	// host:port of the management server, or unix:///path
	Server string `env:"CONFIG_GRPC_XDS_SERVER_URL" envDefault:"localhost:18000"`

	// by which the server chooses the rules; Envoy Gateway answers `envoy-ratelimit` alone
	NodeID string `env:"CONFIG_GRPC_XDS_NODE_ID" envDefault:"default"`
	// of the node: name=value,name=value
	Metadata string `env:"CONFIG_GRPC_XDS_NODE_METADATA"`
	// sent to the server: name:value,name:value
	Headers map[string]string `env:"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS"`

	TLS  bool   `env:"CONFIG_GRPC_XDS_SERVER_USE_TLS"`    // uses TLS
	Cert string `env:"CONFIG_GRPC_XDS_CLIENT_TLS_CERT"`   // file of the sidecar's certificate
	Key  string `env:"CONFIG_GRPC_XDS_CLIENT_TLS_KEY"`    // file of its key
	CA   string `env:"CONFIG_GRPC_XDS_SERVER_TLS_CACERT"` // file of authorities; unset: those of the system
	// name that the server's certificate must hold; unset: the host of CONFIG_GRPC_XDS_SERVER_URL
	SAN string `env:"CONFIG_GRPC_XDS_SERVER_TLS_SAN"`

	// wait before the second attempt to connect
	RetryFirst time.Duration `env:"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL" envDefault:"1s" in:"10ms..1h"`
	// the longest wait between two attempts; at least XDS_CLIENT_BACKOFF_INITIAL_INTERVAL
	RetryMost time.Duration `env:"XDS_CLIENT_BACKOFF_MAX_INTERVAL" envDefault:"10s" in:"10ms..1h"`
	// factor from one wait to the next; up to 1 they stay the same
	RetryGrows float64 `env:"XDS_CLIENT_BACKOFF_RANDOM_FACTOR" envDefault:"2"`
	// shortens waits by up to a half, at random
	Jitter bool `env:"XDS_CLIENT_BACKOFF_JITTER" envDefault:"true"`
	// the largest response that is taken, at most a 32nd of the memory limit or 4 MiB; a larger one is not read, and
	// the rules stay as they are
	MaxMessage int `env:"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES" envDefault:"16777216"`
}

// FromXDS reports whether rules come from a management server.
func (r *Rules) FromXDS() bool { return one(r.Type, "GRPC_XDS_SOTW") }

// Fields are the entries of CONFIG_GRPC_XDS_NODE_METADATA.
func (x *XDS) Fields() map[string]string {
	fields := map[string]string{}
	for pair := range strings.SplitSeq(x.Metadata, ",") {
		name, value, _ := strings.Cut(pair, "=")
		if name = strings.TrimSpace(name); name != "" {
			fields[name] = value
		}
	}
	return fields
}

// Host is the host of the server's address; empty for a socket.
func (x *XDS) Host() string {
	host, _, err := net.SplitHostPort(x.Server)
	if err != nil {
		return ""
	}
	return host
}

// mostXDSMessage bounds XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES.
const mostXDSMessage = 256 << 20

func (c *Config) validateXDS(p *problems) {
	p.unless(c.Rules.FromXDS() || one(c.Rules.Type, "FILE"), "CONFIG_TYPE", c.Rules.Type, "FILE or GRPC_XDS_SOTW")
	if !c.Rules.FromXDS() {
		return
	}
	x := &c.XDS
	if x.MaxMessage == 0 {
		x.MaxMessage = 16 << 20 // the reference server's word for the default
	}
	p.unless(validTarget(x.Server), "CONFIG_GRPC_XDS_SERVER_URL", x.Server,
		"host:port, such as envoy-gateway:18001, or unix:///path")
	x.validateNode(p)
	x.validateTLS(p)
	x.validateRetry(p)
	p.unless(x.MaxMessage >= 1024 && x.MaxMessage <= mostXDSMessage, "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", x.MaxMessage,
		"0, or a number from 1024 to 268435456")
}

// validateNode checks what the server gets to know about this client.
func (x *XDS) validateNode(p *problems) {
	for pair := range strings.SplitSeq(x.Metadata, ",") {
		name, _, both := strings.Cut(pair, "=")
		p.unless(x.Metadata == "" || both && strings.TrimSpace(name) != "", "CONFIG_GRPC_XDS_NODE_METADATA",
			x.Metadata, "a list such as name=value,name=value")
	}
	for _, name := range slices.Sorted(maps.Keys(x.Headers)) {
		p.unless(headerName.MatchString(name) && !strings.HasPrefix(strings.ToLower(name), "grpc-"),
			"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", name, "the name of a header")
	}
}

func (x *XDS) validateRetry(p *problems) {
	p.unless(x.RetryGrows > 0 && x.RetryGrows <= 100, "XDS_CLIENT_BACKOFF_RANDOM_FACTOR", x.RetryGrows,
		"a number above 0 and at most 100")
}

func (x *XDS) validateTLS(p *problems) {
	if !x.TLS {
		p.unused("set CONFIG_GRPC_XDS_SERVER_USE_TLS=true as well, or remove it: the management server is asked "+
			"without TLS", []setting{
			{"CONFIG_GRPC_XDS_CLIENT_TLS_CERT", x.Cert}, {"CONFIG_GRPC_XDS_CLIENT_TLS_KEY", x.Key},
			{"CONFIG_GRPC_XDS_SERVER_TLS_CACERT", x.CA}, {"CONFIG_GRPC_XDS_SERVER_TLS_SAN", x.SAN},
		})
		return
	}
	p.unless((x.Cert == "") == (x.Key == ""), "CONFIG_GRPC_XDS_CLIENT_TLS_CERT", x.Cert,
		"complete: it and CONFIG_GRPC_XDS_CLIENT_TLS_KEY go together")
}

// validTarget reports whether a text is host:port or unix:///path.
func validTarget(text string) bool {
	if path, socket := strings.CutPrefix(text, "unix://"); socket {
		return strings.HasPrefix(path, "/") && len(path) <= maxSocketPath
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" || strings.ContainsAny(host, "/@ ") {
		return false
	}
	_, err = url.Parse("//" + net.JoinHostPort(host, "1"))
	number, wrong := strconv.ParseUint(port, 10, 16)
	return err == nil && wrong == nil && number > 0
}

// warn adds a line for each variable of xDS that is set while rules come from files.
func (c *Config) warnXDS(environ map[string]string, add func(is bool, line string)) {
	for _, name := range slices.Sorted(maps.Keys(environ)) {
		of := strings.HasPrefix(name, "CONFIG_GRPC_XDS_") || strings.HasPrefix(name, "XDS_CLIENT_")
		off := strings.EqualFold(environ[name], "false")
		add(of && unread(name) == "" && !off && !c.Rules.FromXDS(),
			name+": set CONFIG_TYPE=GRPC_XDS_SOTW as well: rules come from files")
	}
}
