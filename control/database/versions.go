package database

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"go.yaml.in/yaml/v3"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/httpapi"
	"github.com/spillway-mesh/spillway/rules"
)

// Version is one version of the rule set of a domain.
type Version struct {
	Domain    string    `json:"domain"`
	Version   int64     `json:"version"`
	Hash      string    `json:"hash"` // SHA-256 of the text
	Note      string    `json:"note"`
	CreatedBy string    `json:"created_by"`
	CreatedAt time.Time `json:"created_at"`
	Rules     int64     `json:"rules"` // how many it has
}

// VersionText is a version with the text of its rule file.
type VersionText struct {
	Version
	Text string `json:"text"`
}

// Publication is a version that was put into force.
type Publication struct {
	Domain      string    `json:"domain"`
	Publication int64     `json:"publication" etag:""`
	Version     int64     `json:"version"` // 0: the rules of the domain were taken out of force
	Canary      int64     `json:"canary"`  // a version that a share of the sidecars uses in its place; 0: none
	Share       int       `json:"share"`   // of the canary, in percent
	Note        string    `json:"note"`
	PublishedBy string    `json:"published_by"`
	PublishedAt time.Time `json:"published_at"`
}

// Refused is the error of rules that do not compile.
type Refused struct{ Problems []descriptors.Problem }

// Error lists all problems, one per line.
func (r *Refused) Error() string { return strings.TrimSuffix(rules.FormatProblems(r.Problems), "\n") }

// MaxTextBytes bounds the text of a version.
const MaxTextBytes = 4 << 20

// AddVersion checks a rule file by the sidecar's compiler and adds it as the newest version of its domain. Where
// publish is set, it also puts it into force. want is the number of the newest publication that the caller has read, 0
// for none; nil: any.
func (d *DB) AddVersion(
	ctx context.Context, by Actor, domain, text, note string, publish bool, want *int64,
) (v *Version, p *Publication, err error) {
	parsed, err := checkText(domain, text)
	if err != nil {
		return nil, nil, err
	}
	err = makeDomain(ctx, d.changes, by, domain)
	if err != nil {
		return nil, nil, err
	}
	err = d.Write(ctx, by, "add_version", func(tx pgx.Tx) error {
		was, err := newest(ctx, tx, domain)
		if err == nil && publish {
			err = check(want, was)
		}
		if err == nil {
			v, err = insertVersion(ctx, tx, parsed, domain, text, note)
		}
		if err == nil && publish {
			p, err = insertPublication(ctx, tx, "publish", domain, v.Version, 0, 0, note)
		}
		return err
	})
	return v, p, err
}

// Publish puts a version into force, be it an old one; or, with a share from 1 to 99, as a canary beside the version
// that is in force.
func (d *DB) Publish(
	ctx context.Context, by Actor, domain string, version int64, share int, note string, want *int64,
) (p *Publication, err error) {
	err = d.Write(ctx, by, "publish", func(tx pgx.Tx) error {
		there, err := found(One[VersionText](ctx, tx, versionSelect+`, v.text FROM rule_versions v
		  WHERE v.domain = $1 AND v.version = $2`, domain, version))
		if err != nil {
			return err
		}
		was, err := newest(ctx, tx, domain)
		if err == nil {
			err = check(want, was)
		}
		if err == nil {
			_, err = checkText(domain, there.Text) // the compiler may be a newer one than when the version was added
		}
		if err == nil {
			p, err = putInForce(ctx, tx, domain, version, share, note)
		}
		return err
	})
	return p, err
}

// putInForce adds the publication of a version, or of a canary.
func putInForce(
	ctx context.Context, tx pgx.Tx, domain string, version int64, share int, note string,
) (*Publication, error) {
	if share == 0 {
		return insertPublication(ctx, tx, "publish", domain, version, 0, 0, note)
	}
	var now int64
	err := tx.QueryRow(ctx, `SELECT coalesce((SELECT version FROM publications WHERE domain = $1
	  ORDER BY publication DESC LIMIT 1), 0)`, domain).Scan(&now)
	switch {
	case err != nil:
		return nil, err
	case now == 0:
		return nil, httpapi.Cannot("a canary runs beside a version, and none is in force: publish one first")
	case now == version:
		return nil, httpapi.Cannot("version %d is in force: a canary must be another one", version)
	}
	return insertPublication(ctx, tx, "canary", domain, now, version, share, note)
}

// Unpublish takes the rules of a domain out of force. Its versions stay.
func (d *DB) Unpublish(ctx context.Context, by Actor, domain string, want *int64) (p *Publication, err error) {
	err = d.Write(ctx, by, "unpublish", func(tx pgx.Tx) error {
		was, err := newest(ctx, tx, domain)
		if err == nil && was == 0 {
			err = ErrNotFound
		}
		if err == nil {
			err = check(want, was)
		}
		if err == nil {
			p, err = insertPublication(ctx, tx, "unpublish", domain, 0, 0, 0, "")
		}
		return err
	})
	return p, err
}

// newest keeps others from publishing in a domain until the transaction ends, and returns the number of its newest
// publication, 0 for none. Rows that name the domain can be added meanwhile, such as blocks.
func newest(ctx context.Context, tx pgx.Tx, domain string) (number int64, err error) {
	_, err = tx.Exec(ctx, `SELECT 1 FROM domains WHERE name = $1 FOR NO KEY UPDATE`, domain)
	if err != nil {
		return 0, err
	}
	err = tx.QueryRow(ctx, `SELECT coalesce(max(publication), 0) FROM publications WHERE domain = $1`,
		domain).Scan(&number)
	return number, err
}

const publicationColumns = `domain, publication, coalesce(version, 0) AS version, coalesce(canary, 0) AS canary,
  share, note, published_by, published_at`

const versionSelect = `SELECT v.domain, v.version, v.hash, v.note, v.created_by, v.created_at,
  jsonb_array_length(v.rules)::bigint AS rules`

func insertVersion(ctx context.Context, tx pgx.Tx, p *parsedText, domain, text, note string) (*Version, error) {
	return One[Version](ctx, tx, `INSERT INTO rule_versions AS v (domain, version, text, hash, rules, costs, identity,
	  note)
	  SELECT $1, coalesce(max(version), 0) + 1, $2, $3, $4, $5, $6, $7 FROM rule_versions WHERE domain = $1
	  RETURNING domain, version, hash, note, created_by, created_at, jsonb_array_length(rules)::bigint AS rules`,
		domain, text, rules.HashText(text), listed(p.rules), listed(p.costs), p.identity, note)
}

func insertPublication(
	ctx context.Context, tx pgx.Tx, action, domain string, version, canary int64, share int, note string,
) (*Publication, error) {
	_, err := tx.Exec(ctx, `SELECT set_config('spillway.action', $1, true)`, action)
	if err != nil {
		return nil, err
	}
	return One[Publication](ctx, tx, `INSERT INTO publications (domain, publication, version, canary, share, note)
	  SELECT $1, coalesce(max(publication), 0) + 1, nullif($2::bigint, 0), nullif($3::bigint, 0), $4, $5
	  FROM publications WHERE domain = $1 RETURNING `+publicationColumns, domain, version, canary, share, note)
}

// Versions are those of a domain, the newest first, of which before is below that number; 0: from the newest on.
func (d *DB) Versions(ctx context.Context, domain string, before int64, count int) ([]Version, error) {
	return Many[Version](ctx, d.reads, versionSelect+` FROM rule_versions v
	  WHERE v.domain = $1 AND ($2::bigint = 0 OR v.version < $2) ORDER BY v.version DESC LIMIT $3`,
		domain, before, count)
}

// VersionOf is one version with its text.
func (d *DB) VersionOf(ctx context.Context, domain string, version int64) (*VersionText, error) {
	return found(One[VersionText](ctx, d.reads, versionSelect+`, v.text FROM rule_versions v
	  WHERE v.domain = $1 AND v.version = $2`, domain, version))
}

// Published is the newest publication of each domain, or of one where a name is given.
func (d *DB) Published(ctx context.Context, domain string) ([]Publication, error) {
	return Many[Publication](ctx, d.reads, `SELECT DISTINCT ON (domain) `+publicationColumns+` FROM publications
	  WHERE $1 = '' OR domain = $1 ORDER BY domain, publication DESC`, domain)
}

// Publications are those of a domain, the newest first, with numbers below before; 0: from the newest on.
func (d *DB) Publications(ctx context.Context, domain string, before int64, count int) ([]Publication, error) {
	return Many[Publication](ctx, d.reads, `SELECT `+publicationColumns+` FROM publications WHERE domain = $1
	  AND ($2::bigint = 0 OR publication < $2)
	  ORDER BY publication DESC LIMIT $3`, domain, before, count)
}

// parsedRule is a rule as the database keeps it: what the compiler read of it, and the rest in the words of the file.
type parsedRule struct {
	Name      string   `json:"name"`
	Priority  int      `json:"priority"`
	Enabled   bool     `json:"enabled"`
	Scope     []string `json:"scope"`
	Match     any      `json:"match"`
	Limits    any      `json:"limits"`
	Action    string   `json:"action"`
	Cost      *int64   `json:"cost"`
	Penalty   any      `json:"penalty"`
	Response  any      `json:"response"`
	OnFailure *string  `json:"on_failure"`
}

// parsedText is a rule file as the database keeps it.
type parsedText struct {
	rules    []parsedRule
	costs    []any
	identity map[string]any
}

// checkText compiles a rule file as a sidecar does. The error is a *Refused where it does not compile.
func checkText(domain, text string) (*parsedText, error) {
	if len(text) > MaxTextBytes {
		return nil, httpapi.NewProblem(http.StatusRequestEntityTooLarge,
			"the rules have %d bytes, and %d are the most", len(text), MaxTextBytes)
	}
	document := rules.Document{Domain: domain, Hash: rules.HashText(text), Text: text, Name: "text"}
	load := rules.CheckPublished(rules.FilesConfig{}, document)
	if load.Rejected() {
		return nil, &Refused{load.Problems}
	}
	var file struct {
		Costs    []any            `yaml:"costs"`
		Identity map[string]any   `yaml:"identity"`
		Rules    []map[string]any `yaml:"rules"`
	}
	err := yaml.Unmarshal([]byte(text), &file)
	if err != nil {
		return nil, noTable(err.Error())
	}
	decoded, _ := rules.Decode(domain, []byte(text))
	if len(decoded.Rules) != len(file.Rules) {
		return nil, noTable("write each rule as an item of its own")
	}
	p := &parsedText{costs: file.Costs, identity: file.Identity}
	if p.identity == nil {
		p.identity = map[string]any{}
	}
	for i := range file.Rules {
		p.rules = append(p.rules, parsedOf(&decoded.Rules[i], file.Rules[i]))
	}
	_, err = json.Marshal([]any{p.rules, p.costs, p.identity})
	if err != nil {
		return nil, noTable(err.Error())
	}
	return p, nil
}

// noTable is the problem of rules that compile, and that the database cannot keep.
func noTable(why string) error {
	return httpapi.NewProblem(http.StatusUnprocessableEntity, "the rules cannot be read as a table: %s", why)
}

// parsedOf is one rule.
func parsedOf(r *descriptors.Rule, words map[string]any) parsedRule {
	row := parsedRule{
		Name: r.Name, Action: r.Action.String(), Priority: r.Priority, Enabled: !r.Disabled,
		Scope: wordsOf(words["scope"]),
		Match: words["match"], Limits: words["limits"], Penalty: words["penalty"], Response: words["response"],
	}
	if words["limit"] != nil {
		row.Limits = []any{words["limit"]}
	}
	if row.Limits == nil {
		row.Limits = []any{}
	}
	if r.Cost > 0 {
		row.Cost = &r.Cost
	}
	if policy, given := words["on_failure"].(string); given {
		row.OnFailure = &policy
	}
	return row
}

// wordsOf is a word or a list of words as a list.
func wordsOf(value any) []string {
	all := []string{}
	switch value := value.(type) {
	case string:
		all = append(all, value)
	case []any:
		for _, one := range value {
			all = append(all, fmt.Sprint(one))
		}
	}
	return all
}
