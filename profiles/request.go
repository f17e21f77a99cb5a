package profiles

import (
	"embed"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spillway-mesh/spillway/limit"
)

// Sources is this file, whose comments describe what is written.
//
//go:embed request.go
var Sources embed.FS

// MaxLimits is how many limits a profile, or a tier, has at most. A request charges those of all its profiles and rules
// together.
const MaxLimits = 16

// maxLimitName is how many characters the name of a limit has at most.
const maxLimitName = 256

// LimitRequest is a limit that an identity is to have: unlimited, or a count and a window.
type LimitRequest struct {
	_ struct{} `oneof:"unlimited count+per"`
	// what headers show
	Name string `json:"name,omitempty" in:"1..256"`
	// true: nothing is limited
	Unlimited *bool `json:"unlimited,omitempty"`
	// tokens in the time of per; 0 refuses everything
	Count *int64 `json:"count,omitempty" in:"0..1000000000000"`
	// the window: a whole number and one unit, such as 1m or 7d
	Per string `json:"per,omitempty" like:"^([1-9][0-9]{0,2}d|[1-9][0-9]{0,3}(h|m|s|ms))$"`
	// the most that can be left, of a token bucket; default: the count
	Burst *int64 `json:"burst,omitempty" in:"0..1000000000000"`
	// how it counts; default: token_bucket
	Algorithm string `json:"algorithm,omitempty" one:"token_bucket sliding_window fixed_window sliding_log"`
}

// ReadLimits reads limits as profiles keep them: at most MaxLimits.
func ReadLimits(written []LimitRequest) ([]Limit, error) {
	if len(written) > MaxLimits {
		return nil, fmt.Errorf("%d limits are more than %d", len(written), MaxLimits)
	}
	var all []Limit
	names := map[string]bool{}
	for i, w := range written {
		l, err := w.limit()
		if err == nil && w.Name != "" && names[w.Name] {
			err = fmt.Errorf("another one has the name %q", w.Name)
		}
		if err == nil && l.Unlimited && len(written) > 1 {
			err = errors.New("unlimited and other limits are both given: keep one or the other")
		}
		if err != nil {
			return nil, fmt.Errorf("limit %d: %w", i+1, err)
		}
		names[w.Name] = true
		all = append(all, l)
	}
	return all, nil
}

func checkLimitName(name string) error {
	if utf8.RuneCountInString(name) > maxLimitName || !Printable(name) || strings.ContainsAny(name, `"\\`) {
		return fmt.Errorf(
			"the name must have at most %d characters, none of them quotes, backslashes or control characters",
			maxLimitName)
	}
	return nil
}

// limit reads one limit. The default algorithm is token_bucket, and its burst is the count.
func (w *LimitRequest) limit() (Limit, error) {
	l := Limit{Name: w.Name}
	err := checkLimitName(w.Name)
	if err != nil {
		return l, err
	}
	if w.Unlimited != nil {
		l.Unlimited = true
		if *w != (LimitRequest{Name: w.Name, Unlimited: w.Unlimited}) || !*w.Unlimited {
			return l, errors.New("unlimited: true must be alone: remove count, per, burst and algorithm")
		}
		return l, nil
	}
	if w.Count == nil {
		return l, errors.New("count is missing")
	}
	algorithm := limit.TokenBucket
	if w.Algorithm != "" {
		var known bool
		algorithm, known = limit.ParseAlgorithm(w.Algorithm)
		if !known {
			return l, fmt.Errorf("algorithm %q must be token_bucket, sliding_window, fixed_window or sliding_log",
				w.Algorithm)
		}
	}
	return w.counted(l, algorithm)
}

// counted fills in the numbers of a limit, and checks them.
func (w *LimitRequest) counted(l Limit, algorithm limit.Algorithm) (Limit, error) {
	per, err := ParseSpan(w.Per)
	if err != nil {
		return l, fmt.Errorf("per: %w", err)
	}
	l.Count, l.Per, l.Algorithm = *w.Count, per, algorithm.String()
	switch {
	case algorithm.HasBurst() && w.Burst == nil:
		l.Burst = l.Count
	case algorithm.HasBurst():
		l.Burst = *w.Burst
	case w.Burst != nil:
		return l, fmt.Errorf("burst belongs to token_bucket: %s has none", algorithm)
	}
	return l, limit.Limit{Algorithm: algorithm, Count: l.Count, Window: per, Burst: l.Burst}.Validate()
}

// SpanPattern is how a duration with one unit is written.
const SpanPattern = `^([1-9][0-9]{0,2}d|[1-9][0-9]{0,3}(h|m|s|ms))$`

var spans = regexp.MustCompile(SpanPattern)

// ParseSpan reads a duration with one unit.
func ParseSpan(text string) (time.Duration, error) {
	if !spans.MatchString(text) {
		return 0, fmt.Errorf("%q must be a whole number and one unit of ms, s, m, h and d, such as 250ms, 10m or 7d",
			text)
	}
	if days, is := strings.CutSuffix(text, "d"); is {
		n, err := strconv.Atoi(days)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}

// Printable reports whether a text has no control characters, so that it may be in an answer.
func Printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}
