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

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/descriptors"
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

// AddVersion checks a rule file by the sidecar's compiler and adds it as the newest version of its domain. Where publish is set, it also
// puts it into force. The condition is about the newest publication.
func (d *DB) AddVersion(ctx context.Context, who Actor, domain, text, note string, publish bool, c Condition) (*Version, *Publication, error) {
	parsed, err := checkText(domain, text)
	if err != nil {
		return nil, nil, err
	}
	err = makeDomain(ctx, d.Changes, who, domain)
	if err != nil {
		return nil, nil, err
	}
	var v *Version
	var p *Publication
	err = d.change(ctx, who, "add_version", Subject{domain, "rules", domain}, func(tx pgx.Tx) (before, after any, err error) {
		was, err := newest(ctx, tx, domain)
		if err == nil && publish {
			err = c.check(was)
		}
		if err != nil {
			return nil, nil, err
		}
		v, err = insertVersion(ctx, tx, who, parsed, domain, text, note)
		if err == nil && publish {
			p, err = insertPublication(ctx, tx, who, domain, v.Version, note)
		}
		return publicationOrNil(was), map[string]any{"version": v, "publication": p}, err
	})
	return v, p, err
}

// publicationOrNil is what the audit shows of the publication before.
func publicationOrNil(number int64) any {
	if number == 0 {
		return nil
	}
	return map[string]int64{"publication": number}
}

// Publish puts a version into force, be it an old one.
func (d *DB) Publish(ctx context.Context, who Actor, domain string, version int64, note string, c Condition) (*Publication, error) {
	var p *Publication
	err := d.change(ctx, who, "publish", Subject{domain, "rules", domain}, func(tx pgx.Tx) (before, after any, err error) {
		there, err := One[VersionText](ctx, tx, versionSelect+`, v.text FROM rule_versions v WHERE v.domain = $1 AND v.version = $2`, domain, version)
		if err != nil {
			return nil, nil, err
		}
		if there == nil {
			return nil, nil, ErrNotFound
		}
		was, err := newest(ctx, tx, domain)
		if err == nil {
			err = c.check(was)
		}
		if err == nil {
			_, err = checkText(domain, there.Text) // the compiler may be a newer one than when the version was added
		}
		if err != nil {
			return nil, nil, err
		}
		p, err = insertPublication(ctx, tx, who, domain, version, note)
		return publicationOrNil(was), p, err
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
	err = tx.QueryRow(ctx, `SELECT coalesce(max(publication), 0) FROM publications WHERE domain = $1`, domain).Scan(&number)
	return number, err
}

// makeDomain makes a domain, unless it is there, before what is made in it: a long change would else hold up all others
// of a domain that is new.
func makeDomain(ctx context.Context, s Session, who Actor, domain string) error {
	_, err := s.Exec(ctx, `INSERT INTO domains (name, created_by) VALUES ($1, $2) ON CONFLICT DO NOTHING`, domain, who.Name)
	return err
}

const publicationColumns = `domain, publication, coalesce(version, 0) AS version, note, published_by, published_at`

const versionSelect = `SELECT v.domain, v.version, v.hash, v.note, v.created_by, v.created_at,
  (SELECT count(*) FROM rules r WHERE r.domain = v.domain AND r.version = v.version) AS rules`

func insertVersion(ctx context.Context, tx pgx.Tx, who Actor, p *parsedText, domain, text, note string) (*Version, error) {
	v := &Version{Domain: domain, Hash: rules.HashText(text), Note: note, CreatedBy: who.Name, Rules: int64(len(p.rules))}
	err := tx.QueryRow(ctx, `INSERT INTO rule_versions (domain, version, text, hash, costs, identity, note, created_by)
	  SELECT $1, coalesce(max(version), 0) + 1, $2, $3, $4, $5, $6, $7 FROM rule_versions WHERE domain = $1 RETURNING version, created_at`,
		domain, text, v.Hash, string(p.costs), string(p.identity), note, who.Name).Scan(&v.Version, &v.CreatedAt)
	if err != nil {
		return nil, err
	}
	for i, r := range p.rules {
		_, err = tx.Exec(ctx, `INSERT INTO rules (domain, version, name, position, priority, enabled, scope, match, limits, action, cost, penalty, response, on_failure)
		  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`,
			domain, v.Version, r.name, i, r.priority, r.enabled, r.scope, r.match, r.limits, r.action, r.cost, r.penalty, r.response, r.onFailure)
		if err != nil {
			return nil, fmt.Errorf("keep the rule %q: %w", r.name, err)
		}
	}
	return v, nil
}

func insertPublication(ctx context.Context, tx pgx.Tx, who Actor, domain string, version int64, note string) (*Publication, error) {
	return One[Publication](ctx, tx, `INSERT INTO publications (domain, publication, version, note, published_by)
	  SELECT $1, coalesce(max(publication), 0) + 1, nullif($2::bigint, 0), $3, $4 FROM publications WHERE domain = $1
	  RETURNING `+publicationColumns, domain, version, note, who.Name)
}

// Versions are those of a domain, the newest first, of which before is below that number; 0: from the newest on.
func (d *DB) Versions(ctx context.Context, domain string, before int64, count int) ([]Version, error) {
	return Many[Version](ctx, d.reads, versionSelect+` FROM rule_versions v WHERE v.domain = $1 AND ($2::bigint = 0 OR v.version < $2) ORDER BY v.version DESC LIMIT $3`, domain, before, count)
}

// VersionOf is one version with its text.
func (d *DB) VersionOf(ctx context.Context, domain string, version int64) (*VersionText, error) {
	v, err := One[VersionText](ctx, d.reads, versionSelect+`, v.text FROM rule_versions v WHERE v.domain = $1 AND v.version = $2`, domain, version)
	if err == nil && v == nil {
		return nil, ErrNotFound
	}
	return v, err
}

// Published is the newest publication of each domain, or of one where a name is given.
func (d *DB) Published(ctx context.Context, domain string) ([]Publication, error) {
	return Many[Publication](ctx, d.reads, `SELECT DISTINCT ON (domain) `+publicationColumns+` FROM publications
	  WHERE $1 = '' OR domain = $1 ORDER BY domain, publication DESC`, domain)
}

// Publications are those of a domain, the newest first, with numbers below before; 0: from the newest on.
func (d *DB) Publications(ctx context.Context, domain string, before int64, count int) ([]Publication, error) {
	return Many[Publication](ctx, d.reads, `SELECT `+publicationColumns+` FROM publications WHERE domain = $1 AND ($2::bigint = 0 OR publication < $2)
	  ORDER BY publication DESC LIMIT $3`, domain, before, count)
}

// Unpublish takes the rules of a domain out of force. Its versions stay.
func (d *DB) Unpublish(ctx context.Context, who Actor, domain string, c Condition) (p *Publication, err error) {
	err = d.change(ctx, who, "unpublish", Subject{domain, "rules", domain}, func(tx pgx.Tx) (before, after any, err error) {
		was, err := newest(ctx, tx, domain)
		if err == nil && was == 0 {
			err = ErrNotFound
		}
		if err == nil {
			err = c.check(was)
		}
		if err != nil {
			return nil, nil, err
		}
		p, err = insertPublication(ctx, tx, who, domain, 0, "")
		return publicationOrNil(was), p, err
	})
	return p, err
}

// parsedRule is a rule as a row.
type parsedRule struct {
	name, action                     string
	priority                         int
	enabled                          bool
	scope                            []string
	match, limits, penalty, response *string
	cost                             *int64
	onFailure                        *string
}

// parsedText is a rule file as rows.
type parsedText struct {
	rules           []parsedRule
	costs, identity json.RawMessage
}

// checkText compiles a rule file as a sidecar does, and returns it as rows. The error is a *Refused where it does not compile.
func checkText(domain, text string) (*parsedText, error) {
	if len(text) > MaxTextBytes {
		return nil, admin.NewProblem(http.StatusRequestEntityTooLarge, "the rules have %d bytes, and %d are the most", len(text), MaxTextBytes)
	}
	load := rules.CheckPublished(rules.FilesConfig{}, rules.Document{Domain: domain, Hash: rules.HashText(text), Text: text})
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
	p := &parsedText{costs: json.RawMessage("[]"), identity: json.RawMessage("{}")}
	if len(file.Costs) > 0 {
		p.costs, err = json.Marshal(file.Costs)
	}
	if err == nil && len(file.Identity) > 0 {
		p.identity, err = json.Marshal(file.Identity)
	}
	for i := range file.Rules {
		p.rules = append(p.rules, rowOf(&decoded.Rules[i], file.Rules[i]))
	}
	if err != nil {
		return nil, noTable(err.Error())
	}
	return p, nil
}

// noTable is the problem of rules that compile, and that cannot be rows.
func noTable(why string) error {
	return admin.NewProblem(http.StatusUnprocessableEntity, "the rules cannot be read as a table: %s", why)
}

// rowOf is a rule as a row: what the compiler read of it, and the rest in the words of the file.
func rowOf(r *descriptors.Rule, words map[string]any) parsedRule {
	row := parsedRule{name: r.Name, action: r.Action.String(), priority: r.Priority, enabled: !r.Disabled, scope: wordsOf(words["scope"])}
	row.match, row.penalty, row.response = AsJSON(words["match"]), AsJSON(words["penalty"]), AsJSON(words["response"])
	limits := words["limits"]
	if words["limit"] != nil {
		limits = []any{words["limit"]}
	}
	if limits == nil {
		limits = []any{}
	}
	row.limits = AsJSON(limits)
	if r.Cost > 0 {
		row.cost = &r.Cost
	}
	if policy, given := words["on_failure"].(string); given {
		row.onFailure = &policy
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

// AsJSON is a value as JSON, nil for none.
func AsJSON(value any) *string {
	if value == nil {
		return nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		text = []byte("null") // YAML that the compiler took has texts as keys
	}
	words := string(text)
	return &words
}
