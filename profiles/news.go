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

// news are classes of records that other sidecars have announced.
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

// Forget takes in news that the record of a key has changed, which is of that class. An empty key means any record
// of the class. News of domains that are not served change nothing.
func (b *Book) Forget(key, class string) {
	if !b.serves(class) {
		return
	}
	b.drop(key)
	if len(catalogOf([]string{class})) == 0 {
		return // a class of another version
	}
	b.mu.Lock()
	b.hearLocked(strings.Clone(class))
	b.mu.Unlock()
	if class == fillingClass { // it has begun or ended, as the index shows
		b.Outdate()
	}
}

// changed takes in that this process has changed the record of a key.
func (b *Book) changed(key, class string) {
	b.drop(key)
	b.mu.Lock()
	b.rememberLocked(class)
	b.addLocked(class)
	b.mu.Unlock()
	if class == fillingClass {
		b.Outdate()
	}
}

// drop forgets what is known about a record, or about all where the key is empty.
func (b *Book) drop(key string) {
	if key == "" {
		b.cache.outdate()
		return
	}
	b.cache.forget(key)
}

// serves reports whether a class is of a domain that is served.
func (b *Book) serves(class string) bool {
	at := strings.LastIndexByte(class, '|')
	return at >= 0 && (b.cfg.Serves == nil || class == fillingClass || b.cfg.Serves(class[:at]))
}

// rememberLocked keeps a class until the index has it. Where there are too many, the index is read instead.
func (b *Book) rememberLocked(class string) {
	if len(b.news.added) >= maxAdded {
		clear(b.news.added)
		b.Reread()
	}
	b.news.added[class] = b.cfg.Now()
}

// hearLocked adds a class to the catalog, at once unless other news have changed it a moment ago.
func (b *Book) hearLocked(class string) {
	_, heard := b.news.added[class]
	b.rememberLocked(class)
	if b.knownLocked(class) || heard && b.news.timer != nil {
		return
	}
	wait := catalogEvery - time.Since(b.news.changed)
	if b.news.timer == nil && wait <= 0 {
		b.news.changed = time.Now()
		b.addLocked(class)
		return
	}
	if len(b.news.waiting) < maxAdded {
		b.news.waiting = append(b.news.waiting, class)
	}
	if b.news.timer == nil {
		b.news.timer = time.AfterFunc(wait, b.addWaiting)
	}
}

// addWaiting adds the classes that wait.
func (b *Book) addWaiting() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.addLocked(b.news.waiting...)
	b.news.waiting, b.news.timer, b.news.changed = nil, nil, time.Now()
}

// knownLocked reports whether the catalog has a class.
func (b *Book) knownLocked(class string) bool {
	known := b.catalog.Load()
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
func (b *Book) addLocked(classes ...string) {
	all := catalog{}
	if now := b.catalog.Load(); now != nil {
		all = maps.Clone(*now)
	}
	for domain, kinds := range catalogOf(classes) {
		all[domain] = all[domain].and(kinds)
	}
	b.storeLocked(all)
}

// storeLocked takes a catalog into use. Each domain counts on where it was.
func (b *Book) storeLocked(all catalog) {
	for domain, kinds := range all {
		if kinds.uses != nil {
			continue // they are in use already
		}
		if b.uses[domain] == nil {
			b.uses[domain] = new(uses)
		}
		kinds.uses = b.uses[domain]
	}
	b.catalog.Store(&all)
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
