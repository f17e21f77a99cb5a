package settings

// Admin is who may use the API under /v1 on the debug port. Without a file of tokens and without client certificates it
// answers this machine only.
type Admin struct {
	// Tokens is a file with a line for each who may use the API: a role (view or operate), a name for the log, and a
	// token of at least 16 bytes, with blanks in between. It is read again when it changes.
	Tokens string `env:"ADMIN_TOKEN_FILE"`

	// Local is the role of this machine without a file of tokens and without client certificates: view or operate. In a
	// pod, every container is this machine.
	Local string `env:"ADMIN_LOCAL" envDefault:"operate" in:"view|operate"`

	// file of a certificate; with it the debug port speaks TLS
	Cert string `env:"ADMIN_TLS_CERT"`
	Key  string `env:"ADMIN_TLS_KEY"` // file of its key
	// file of authorities; a client with a certificate that one of them signed may use the API, in the role view
	ClientCA string `env:"ADMIN_TLS_CLIENT_CA"`
	// DNS names or URIs, with commas in between; a client whose certificate holds one of them has the role operate
	Operators string `env:"ADMIN_TLS_OPERATORS"`
	// role that /v1/events needs: view, operate, or off for none; events name clients
	Events string `env:"ADMIN_EVENTS" envDefault:"operate" in:"view|operate|off"`
	// keys that the sketch behind /v1/top keeps, from 16; 0: no sketch
	TopKeys int `env:"ADMIN_TOP_KEYS" envDefault:"1024"`
	// refusals and degraded decisions that are kept for five minutes, 1 KiB each and all together at most a 32nd of the
	// memory limit; answers and LOG_DECISIONS have their ids, as the header x-ratelimit-decision, and spillway explain
	// --id shows them; 0: none
	Decisions int `env:"ADMIN_DECISIONS" envDefault:"8192"`
}

// OperatorNames are the entries of ADMIN_TLS_OPERATORS.
func (a *Admin) OperatorNames() []string { return TLS{SAN: a.Operators}.Names() }

// Bounds of the memory of the sketch, and of the decisions that are kept.
const (
	maxTop       = 65536
	maxDecisions = 1 << 20
)

func (a *Admin) validate(p *problems) {
	p.unless(a.TopKeys == 0 || a.TopKeys >= 16 && a.TopKeys <= maxTop, "ADMIN_TOP_KEYS", a.TopKeys,
		"0, or a number from 16 to 65536")
	p.unless(a.Decisions >= 0 && a.Decisions <= maxDecisions, "ADMIN_DECISIONS", a.Decisions,
		"a number from 0 to 1048576")
	if a.Cert == "" {
		p.unused("set ADMIN_TLS_CERT as well, or remove it: the debug port has no TLS", []setting{
			{"ADMIN_TLS_KEY", a.Key}, {"ADMIN_TLS_CLIENT_CA", a.ClientCA}, {"ADMIN_TLS_OPERATORS", a.Operators},
		})
		return
	}
	p.unless(a.Key != "", "ADMIN_TLS_KEY", "", "a file, which ADMIN_TLS_CERT needs")
	p.unless(a.Operators == "" || a.ClientCA != "", "ADMIN_TLS_OPERATORS", a.Operators,
		"checked without ADMIN_TLS_CLIENT_CA: set that too")
}
