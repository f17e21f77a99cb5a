package telemetry

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	shortestSecret = 8   // bytes
	recentSecrets  = 100 // that AddRecent keeps
)

// Secrets never appear in a log: *** is written in their place. Those of less than eight
// bytes are left alone, because they may be part of ordinary words, and their absence would show them. The zero value
// holds none. It is safe for concurrent use.
type Secrets struct {
	mu            sync.Mutex // guards the lists
	fixed, recent []string   // oldest first
	hide          atomic.Pointer[strings.Replacer]
}

// Add hides texts for good.
func (s *Secrets) Add(texts ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fixed = append(s.fixed, texts...)
	s.hideLocked()
}

// AddRecent hides a text that others will take the place of, such as a password that changes: the newest hundred stay
// hidden.
func (s *Secrets) AddRecent(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.recent, text) {
		return
	}
	s.recent = append(s.recent, text)
	s.recent = slices.Delete(s.recent, 0, max(len(s.recent)-recentSecrets, 0))
	s.hideLocked()
}

func (s *Secrets) hideLocked() {
	var pairs []string
	all := slices.Concat(s.fixed, s.recent)
	slices.SortStableFunc(all, func(a, b string) int { return len(b) - len(a) }) // a secret may begin with another one
	for _, text := range all {
		if len(text) >= shortestSecret {
			pairs = append(pairs, text, "***")
		}
	}
	s.hide.Store(strings.NewReplacer(pairs...))
}

// conceal returns a text without the secrets.
func (s *Secrets) conceal(text string) string {
	hide := s.hide.Load()
	if hide == nil {
		return text
	}
	return hide.Replace(text)
}
