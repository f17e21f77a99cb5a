package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/redis/peers"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// question is the body of a message that asks for profiles.
func question(t testing.TB, keys keys.Names, all ...peers.MissingProfile) []byte {
	t.Helper()
	text := must.Get(json.Marshal(all))(t)
	body := must.Get(json.Marshal(peers.MissingProfiles{Hidden: keys.Hide(text)}))(t)
	return body
}

// askedFor stops a refill before its first page. Sidecars can look up what they need, and what they ask for is put
// back; nothing else is.
func askedFor(c *capacity) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	goOn, stopped := make(chan struct{}), make(chan struct{}, 100)
	c.publisher.passed = func(step string) {
		if step == "compared" {
			stopped <- struct{}{}
			<-goOn
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- c.publisher.refill(ctx, c.conn) }()
	<-stopped
	index := fmt.Sprint(c.redis.Do(c, "ZRANGE", c.publisher.cfg.Keys.Shared("index"), "0", "-1"))
	for _, class := range []string{"shop|user", "shop|api_key", "shop|secret", "|filling"} {
		if !strings.Contains(index, class) {
			c.Errorf("while profiles are put back the index is %s, want %s in it", index, class)
		}
	}
	channel := c.publisher.cfg.Keys.Shared("missing")
	ask := peers.MissingProfiles{}
	c.must(json.Unmarshal(question(c, c.publisher.cfg.Keys, peers.MissingProfile{Domain: "shop", Kind: "user",
		Name: "u000009"}, peers.MissingProfile{Domain: "shop", Kind: "user", Name: "stranger"},
		peers.MissingProfile{Domain: "shop", Kind: "user", Name: "u\x00"},
		peers.MissingProfile{Domain: "shop", Kind: "secret",
			Name: "no digest"}, peers.MissingProfile{Domain: "shop", Kind: "api_key", Name: "k1"}), &ask))
	servers.Await(c, "what was asked for", func() error {
		c.must(peers.Announce(ctx, c.client, channel, peers.TopicMissing, ask)) // again: it may not listen yet
		if !strings.Contains(c.has("user", "u000009"), `"count":5`) ||
			!strings.Contains(c.has("api_key", "k1"), `"count":7`) {
			return errors.New("it is not there")
		}
		return nil
	})
	c.expect("asked for", "user", "stranger", "")
	c.expect("not asked for", "user", "u000010", "")
	close(goOn)
	c.must(<-ended)
	c.expect("at the end", "user", "u000010", `"count":5`)
	if index = fmt.Sprint(c.redis.Do(c, "ZRANGE", c.publisher.cfg.Keys.Shared("index"), "0", "-1")); strings.Contains(
		index, "|filling") {
		c.Errorf("when all is back the index is %s", index)
	}
}

// TestQuestionsOfSidecars reads questions that are as they have to be, and others.
func TestQuestionsOfSidecars(t *testing.T) {
	keys, others := keys.NewNames("", []byte("secret")), keys.NewNames("", []byte("another"))
	p := &Publisher{cfg: Config{Keys: keys}}
	ann := peers.MissingProfile{Domain: "shop", Kind: "user", Name: "ann"}
	for _, one := range []struct {
		what string
		body []byte
		want int // below 0: an error
	}{
		{"a question", question(t, keys, ann,
			peers.MissingProfile{Domain: "shop", Kind: "secret", Name: strings.Repeat("ab", 32)}), 2},
		{"what no database has", question(t, keys, ann, peers.MissingProfile{Domain: "shop", Kind: "user",
			Name: "a\x00"}, peers.MissingProfile{Domain: "shop", Kind: "secret", Name: "ab"},
			peers.MissingProfile{Domain: "shop", Kind: "ip", Name: "here"},
			peers.MissingProfile{Domain: "shop", Kind: "rules"},
			peers.MissingProfile{Domain: "shop", Kind: "user", Name: strings.Repeat("a", maxName+1)}), 1},
		{"another secret", question(t, others, ann), -1},
		{"no JSON", []byte("ann"), -1},
		{"too long", append([]byte(`{"hidden":"`), make([]byte, maxMessage)...), -1},
	} {
		got, err := p.readMissing(one.body)
		if (err != nil) != (one.want < 0) || err == nil && len(got) != one.want {
			t.Errorf("%s: %d identities, %v, want %d", one.what, len(got), err, one.want)
		}
	}
}

// TestQuestionsAreBounded asks for more than there is room for, and for the same again.
func TestQuestionsAreBounded(t *testing.T) {
	m := newMissing()
	for n := range maxMissing + 7 {
		m.ask([]database.Subject{{Domain: "shop", Kind: database.KindUser, Name: fmt.Sprint("user-", n)},
			{Domain: "shop", Kind: database.KindUser, Name: "user-0"}})
	}
	if len(m.waiting) != maxMissing || m.dropped.Load() != 7 {
		t.Errorf("%d wait and %d are dropped, want %d and 7", len(m.waiting), m.dropped.Load(), maxMissing)
	}
	taken := map[database.Subject]bool{}
	for some := m.take(); len(some) > 0; some = m.take() {
		for _, s := range some {
			taken[s] = true
		}
		if len(some) > missingPage {
			t.Fatalf("%d are taken at once", len(some))
		}
	}
	if len(taken) != maxMissing {
		t.Errorf("%d are taken, want %d", len(taken), maxMissing)
	}
}
