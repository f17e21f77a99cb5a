package erase

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/control/leader"
	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/redis"
)

const (
	streamPage = 100  // entries that are read together
	scanPage   = 1000 // keys that a server looks at together
)

// entry is one entry of a stream of the record.
type streamEntry struct {
	id     string
	fields map[string]string
}

// streams is what sidecars have sent and Redis still holds. An entry that is copied may go. One that is not is waited
// for: it holds the rows of others, too, and the copy drops what comes out of order.
func (x *Eraser) streams(p *person) place {
	return place{
		name: "streams in Redis", hint: ", which are not copied yet: ask again",
		remove: func(ctx context.Context) (removed int64, err error) {
			deadline := time.Now().Add(copyWithin)
			for {
				n, waits, err := x.trim(ctx, p)
				removed += n
				if err != nil || waits == 0 || time.Now().After(deadline) {
					return removed, err
				}
				leader.Pause(ctx, lookEvery)
			}
		},
		count: func(ctx context.Context) (left int64, err error) {
			err = x.entries(ctx, p, func(string, *streamEntry) error { left++; return nil })
			return left, err
		},
	}
}

// trim deletes the entries of a person that are copied, and counts those that are not.
func (x *Eraser) trim(ctx context.Context, p *person) (removed, waits int64, err error) {
	err = x.entries(ctx, p, func(stream string, e *streamEntry) error {
		var copied bool
		err := x.Database.Tasks.QueryRow(ctx, `SELECT EXISTS (SELECT FROM record_sources WHERE sidecar = $1
		  AND stream = $2 AND sequence::text::numeric >= CASE WHEN $3 ~ '^[0-9]{1,18}$' THEN $3::numeric END)`,
			e.fields["sidecar"], stream, e.fields["sequence"]).Scan(&copied)
		if err != nil {
			return err
		}
		if !copied {
			waits++
			return nil
		}
		key := x.Keys.Shared(stream)
		_, err = x.Redis.Run(ctx, key, "XDEL", key, e.id)
		removed++
		return err
	})
	return removed, waits, err
}

// entries calls f with each entry that names the person.
func (x *Eraser) entries(ctx context.Context, p *person, f func(stream string, e *streamEntry) error) error {
	names := slices.Concat(p.identities, p.ips, p.shown())
	for _, stream := range []string{"usage", "events"} {
		key := x.Keys.Shared(stream)
		for from := "-"; ctx.Err() == nil; {
			reply, err := x.Redis.Run(ctx, key, "XRANGE", key, from, "+", "COUNT", streamPage)
			if err != nil {
				return fmt.Errorf("read the stream %s: %w", stream, err)
			}
			page := entriesOf(reply)
			for i := range page {
				from = "(" + page[i].id
				if !mentions([]byte(page[i].fields["rows"]), names) {
					continue
				}
				err = f(stream, &page[i])
				if err != nil {
					return err
				}
			}
			if len(page) < streamPage {
				break
			}
		}
	}
	return ctx.Err()
}

// entriesOf are the entries of a reply to XRANGE.
func entriesOf(reply any) (all []streamEntry) {
	items, _ := reply.([]any)
	for _, item := range items {
		parts, _ := item.([]any)
		if len(parts) != 2 {
			continue
		}
		e := streamEntry{id: textOf(parts[0]), fields: map[string]string{}}
		words, _ := parts[1].([]any)
		for i := 0; i+1 < len(words); i += 2 {
			e.fields[textOf(words[i])] = textOf(words[i+1])
		}
		all = append(all, e)
	}
	return all
}

// mentions reports whether a JSON document has one of some texts as a value. What cannot be read counts as if it did.
func mentions(document []byte, names []string) bool {
	var value any
	if json.Unmarshal(document, &value) != nil {
		return len(document) > 0
	}
	return mentioned(value, names)
}

func mentioned(value any, names []string) bool {
	switch v := value.(type) {
	case string:
		return slices.Contains(names, v)
	case []any:
		return slices.ContainsFunc(v, func(one any) bool { return mentioned(one, names) })
	case map[string]any:
		for _, one := range v {
			if mentioned(one, names) {
				return true
			}
		}
	}
	return false
}

// counters is the counters of Redis whose keys name the person. With KEY_SECRET those that count by the person and by
// something else cannot be found; they end with their windows.
func (x *Eraser) counters(p *person) place {
	return place{
		name: "counters in Redis",
		remove: func(ctx context.Context) (removed int64, err error) {
			err = x.scan(ctx, p, func(s *redis.Server, key string) error {
				_, err := s.Run(ctx, "UNLINK", key)
				removed++
				return err
			})
			return removed, err
		},
		count: func(ctx context.Context) (left int64, err error) {
			err = x.scan(ctx, p, func(*redis.Server, string) error { left++; return nil })
			return left, err
		},
	}
}

// scan calls f with the key of each counter of the person.
func (x *Eraser) scan(ctx context.Context, p *person, f func(s *redis.Server, key string) error) error {
	who := p.counterNames(x.Keys)
	pattern := globQuote.Replace(who[0].head) + "*"
	for _, s := range x.Redis.Servers() {
		for cursor, begun := "0", false; cursor != "0" || !begun; begun = true {
			keys, next, err := scanPageOf(ctx, s, cursor, pattern)
			if err != nil {
				return fmt.Errorf("look through the counters: %w", err)
			}
			cursor = next
			for _, key := range keys {
				if !slices.ContainsFunc(who, func(c counterName) bool { return c.in(key) }) {
					continue
				}
				err = f(s, key)
				if err != nil {
					return err
				}
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	return nil
}

// counterNames are the names of the person in keys of counters.
func (p *person) counterNames(names keys.Names) (all []counterName) {
	for _, s := range p.subjects() {
		if s.Kind != database.KindSecret {
			all = append(all, counterNameOf(names, s.Domain, s.Kind, s.Name))
		}
	}
	return all
}

// scanPageOf is some keys of a server that match a pattern, and where the next page begins: 0 at the end.
func scanPageOf(ctx context.Context, s *redis.Server, cursor, pattern string) (keys []string, next string, err error) {
	reply, err := s.Run(ctx, "SCAN", cursor, "MATCH", pattern, "COUNT", scanPage)
	if err != nil {
		return nil, "", err
	}
	parts, _ := reply.([]any)
	if len(parts) != 2 {
		return nil, "", fmt.Errorf("the reply has %d parts", len(parts))
	}
	items, _ := parts[1].([]any)
	for _, item := range items {
		keys = append(keys, textOf(item))
	}
	return keys, textOf(parts[0]), nil
}

var globQuote = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// counterName is an identity as keys of counters write it.
type counterName struct {
	head  string // what keys of the domain begin with
	value string
	kind  string
}

func counterNameOf(names keys.Names, domain, kind, name string) counterName {
	head, value := names.Counted(domain, name)
	return counterName{head, value, kind}
}

// countedBy is the scopes in whose keys an identity of a kind may stand.
var countedBy = map[string][]string{database.KindUser: {database.KindUser, "client"},
	"api_key": {"api_key", database.KindUser, "client"}, "ip": {"ip", "client"}, "tenant": {"tenant"}}

var scopeWords = []string{"tenant", "user", "ip", "endpoint", "api_key", "tier", "client"}

// in reports whether the key of a counter names the identity.
func (c *counterName) in(key string) bool {
	read := keys.Read(key)
	if read.Head != c.head {
		return false
	}
	words := strings.Split(read.By, "+")
	tree := slices.ContainsFunc(words, func(w string) bool { return !slices.Contains(scopeWords, w) })
	for i, value := range read.Values {
		if value == c.value && (tree || i < len(words) && slices.Contains(countedBy[c.kind], words[i])) {
			return true
		}
	}
	return false
}

// textOf is a text in a reply of Redis; of anything else nothing.
func textOf(reply any) string {
	text, _ := reply.(string)
	return text
}
