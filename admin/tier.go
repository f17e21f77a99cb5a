package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/records"
)

const maxTier = 256 // characters

// MaxLimits is how many limits a record, or a tier, has at most. A request charges those of all its records and rules
// together.
const MaxLimits = 16

// TierRequest asks for a tier, or for limits of its own, of an identity. What is left out stays; an empty tier and an empty list go back
// to what the rule file has.
type TierRequest struct {
	Whom
	Tier   *string     `json:"tier,omitempty"`
	Limits *[]NewLimit `json:"limits,omitempty"`
	Note   *string     `json:"note,omitempty"`
	DryRun bool        `json:"dry_run,omitempty"`
}

// NewLimit is a limit that an identity is to have: unlimited, or a count and a window.
type NewLimit struct {
	Name      string `json:"name,omitempty"`
	Unlimited *bool  `json:"unlimited,omitempty"`
	Count     *Whole `json:"count,omitempty"`
	Per       string `json:"per,omitempty"`
	Burst     *Whole `json:"burst,omitempty"`     // default: the count
	Algorithm string `json:"algorithm,omitempty"` // default: token_bucket
}

// Whole is a whole number. JSON may write it as 100, 100.0 or 1e2.
type Whole int64

// UnmarshalJSON reads the number.
func (n *Whole) UnmarshalJSON(text []byte) error {
	whole, err := strconv.ParseInt(string(text), 10, 64)
	if err == nil {
		*n = Whole(whole)
		return nil
	}
	var number float64
	err = json.Unmarshal(text, &number)
	if err != nil || number != math.Trunc(number) || math.Abs(number) > 1<<53 {
		return fmt.Errorf("%s must be a whole number", text)
	}
	*n = Whole(number)
	return nil
}

// tier serves POST /v1/tier.
func (a *API) tier(c *call) (any, *Problem) {
	var ask TierRequest
	id, wrong := a.readWhom(c, &ask, &ask.Whom)
	if wrong == nil {
		wrong = ask.check(id.Kind)
	}
	if wrong != nil {
		return nil, wrong
	}
	limits, wrong := limitsOf(ask.Limits)
	if wrong != nil {
		return nil, wrong
	}
	var warnings []string
	if d, _ := a.domain(id.Domain); ask.Tier != nil && *ask.Tier != "" && d != nil && !d.NamesTier(*ask.Tier) {
		warnings = append(warnings, fmt.Sprintf("no rule of the domain %q names the tier %q", id.Domain, *ask.Tier))
	}
	return a.change(c, "tier", id, ask.DryRun, warnings, func(r *records.Record) {
		if ask.Tier != nil {
			r.Tier = *ask.Tier
		}
		if ask.Limits != nil {
			r.Limits = limits
		}
		note(r, ask.Note)
	})
}

// check returns what is wrong with the request.
func (r *TierRequest) check(kind records.Kind) *Problem {
	switch {
	case kind == records.Network:
		return cannot("an address has no tier and no limits of its own: name a user, a tenant or an api_key")
	case r.Tier == nil && r.Limits == nil && r.Note == nil:
		return cannot("tier, limits and note are missing: give at least one of them")
	case r.Tier != nil && utf8.RuneCountInString(*r.Tier) > maxTier:
		return bad("the tier has more than %d characters", maxTier)
	case r.Limits != nil && len(*r.Limits) > MaxLimits:
		return bad("%d limits are more than %d", len(*r.Limits), MaxLimits)
	}
	return texts("", r.Note)
}

// limitsOf reads limits.
func limitsOf(written *[]NewLimit) ([]records.Limit, *Problem) {
	if written == nil {
		return nil, nil
	}
	var all []records.Limit
	names := map[string]bool{}
	for i, w := range *written {
		l, err := w.limit()
		if err == nil && w.Name != "" && names[w.Name] {
			err = fmt.Errorf("another one has the name %q", w.Name)
		}
		if err == nil && l.Unlimited && len(*written) > 1 {
			err = errors.New("unlimited stands beside other limits: keep one or the other")
		}
		if err != nil {
			return nil, cannot("limit %d: %v", i+1, err)
		}
		names[w.Name] = true
		all = append(all, l)
	}
	return all, nil
}

// limit reads one limit. The default algorithm is token_bucket, and its burst is the count.
func (w *NewLimit) limit() (records.Limit, error) {
	r := records.Limit{Name: w.Name}
	if utf8.RuneCountInString(w.Name) > maxTier || !plainName(w.Name) {
		return r, fmt.Errorf("the name must have at most %d characters, and no quotes, backslashes and control characters", maxTier)
	}
	if w.Unlimited != nil {
		r.Unlimited = true
		if !*w.Unlimited || *w != (NewLimit{Name: w.Name, Unlimited: w.Unlimited}) {
			return r, errors.New("unlimited: true stands alone: remove count, per, burst and algorithm")
		}
		return r, nil
	}
	if w.Count == nil {
		return r, errors.New("count is missing")
	}
	algorithm := limit.TokenBucket
	if w.Algorithm != "" {
		var known bool
		algorithm, known = limit.ParseAlgorithm(w.Algorithm)
		if !known {
			return r, fmt.Errorf("algorithm %q must be token_bucket, sliding_window, fixed_window or sliding_log", w.Algorithm)
		}
	}
	return w.counted(r, algorithm)
}

// counted fills in the numbers of a limit, and checks them.
func (w *NewLimit) counted(r records.Limit, algorithm limit.Algorithm) (records.Limit, error) {
	per, err := oneSpan(w.Per)
	if err != nil {
		return r, fmt.Errorf("per: %w", err)
	}
	r.Count, r.Per, r.Algorithm = int64(*w.Count), per, algorithm.String()
	switch {
	case algorithm.HasBurst() && w.Burst == nil:
		r.Burst = r.Count
	case algorithm.HasBurst():
		r.Burst = int64(*w.Burst)
	case w.Burst != nil:
		return r, fmt.Errorf("burst belongs to token_bucket: %s has none", algorithm)
	}
	return r, limit.Limit{Algorithm: algorithm, Count: r.Count, Window: per, Burst: r.Burst}.Validate()
}
