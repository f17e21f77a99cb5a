package profiles

import (
	"maps"
	"strings"
	"time"
)

const (
	catalogEvery = 100 * time.Millisecond // how often news change the catalog at most
	maxAdded     = 10_000                 // classes that are remembered until the index has them
)

// news are classes of profiles that other sidecars have announced.
type news struct {
	added   map[string]time.Time // until the index that is read has them
	changed time.Time            // when they changed the catalog last
	waiting []string             // that are not in the catalog yet
	timer   *time.Timer          // adds them; nil: none wait
}

func (n *news) stopLocked() {
	if n.timer != nil {
		n.timer.Stop()
	}
}

// Forget takes in news that the profile of a key has changed, which is of that class. An empty key means any profile
// of the class. News of domains that are not served change nothing.
func (p *Store) Forget(key, class string) {
	if !p.serves(class) {
		return
	}
	p.drop(key)
	if len(catalogOf([]string{class})) == 0 {
		return // a class of another version
	}
	p.mu.Lock()
	p.hearLocked(strings.Clone(class))
	p.mu.Unlock()
	if class == fillingClass { // it has begun or ended, as the index shows
		p.Outdate()
	}
}

// changed takes in that this process has changed the profile of a key.
func (p *Store) changed(key, class string) {
	p.drop(key)
	p.mu.Lock()
	p.rememberLocked(class)
	p.addLocked(class)
	p.mu.Unlock()
	if class == fillingClass {
		p.Outdate()
	}
}

// drop forgets what is known about a profile, or about all where the key is empty.
func (p *Store) drop(key string) {
	if key == "" {
		p.cache.outdate()
		return
	}
	p.cache.forget(key)
}

// serves reports whether a class is of a domain that is served.
func (p *Store) serves(class string) bool {
	at := strings.LastIndexByte(class, '|')
	return at >= 0 && (p.cfg.Serves == nil || class == fillingClass || p.cfg.Serves(class[:at]))
}

// rememberLocked keeps a class until the index has it. Where there are too many, the index is read instead.
func (p *Store) rememberLocked(class string) {
	if len(p.news.added) >= maxAdded {
		clear(p.news.added)
		p.Reread()
	}
	p.news.added[class] = p.cfg.Now()
}

// hearLocked adds a class to the catalog, at once unless other news have changed it a moment ago.
func (p *Store) hearLocked(class string) {
	_, heard := p.news.added[class]
	p.rememberLocked(class)
	if p.knownLocked(class) || heard && p.news.timer != nil {
		return
	}
	wait := catalogEvery - time.Since(p.news.changed)
	if p.news.timer == nil && wait <= 0 {
		p.news.changed = time.Now()
		p.addLocked(class)
		return
	}
	if len(p.news.waiting) < maxAdded {
		p.news.waiting = append(p.news.waiting, class)
	}
	if p.news.timer == nil {
		p.news.timer = time.AfterFunc(wait, p.addWaiting)
	}
}

// addWaiting adds the classes that wait.
func (p *Store) addWaiting() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addLocked(p.news.waiting...)
	p.news.waiting, p.news.timer, p.news.changed = nil, nil, time.Now()
}

// knownLocked reports whether the catalog has a class.
func (p *Store) knownLocked(class string) bool {
	known := p.catalog.Load()
	if known == nil {
		return false
	}
	for domain, kinds := range catalogOf([]string{class}) {
		if !(*known)[domain].covers(kinds) {
			return false
		}
	}
	return true
}

// addLocked adds classes to the catalog.
func (p *Store) addLocked(classes ...string) {
	all := catalog{}
	if now := p.catalog.Load(); now != nil {
		all = maps.Clone(*now)
	}
	for domain, kinds := range catalogOf(classes) {
		all[domain] = all[domain].and(kinds)
	}
	p.storeLocked(all)
}

// storeLocked takes a catalog into use. Each domain counts on where it was.
func (p *Store) storeLocked(all catalog) {
	for domain, kinds := range all {
		if kinds.uses != nil {
			continue // they are in use already
		}
		if p.uses[domain] == nil {
			p.uses[domain] = new(uses)
		}
		kinds.uses = p.uses[domain]
	}
	p.catalog.Store(&all)
}

// and is the kinds of both.
func (k *Kinds) and(more *Kinds) *Kinds {
	sum := &Kinds{}
	for _, one := range []*Kinds{k, more} {
		if one == nil {
			continue
		}
		sum.filling = sum.filling || one.filling
		for kind, has := range one.has {
			sum.has[kind] = sum.has[kind] || has
		}
		for family, lengths := range one.networks {
			sum.networks[family] = union(sum.networks[family], lengths)
		}
	}
	return sum
}

// covers reports whether the kinds have all of the others.
func (k *Kinds) covers(others *Kinds) bool {
	if k == nil {
		return false
	}
	sum := k.and(others)
	return sum.filling == k.filling && sum.has == k.has && len(sum.networks[0]) == len(k.networks[0]) &&
		len(sum.networks[1]) == len(k.networks[1])
}
