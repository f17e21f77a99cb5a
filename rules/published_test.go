package rules

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
)

// shelf is what is published, and what a Files made of it.
type shelf struct {
	t         *testing.T
	mu        sync.Mutex // guards documents and err
	documents []Document
	err       error
	loads     chan Load
	files     *Files
}

// newShelf watches a file, or none where the text is empty, and what is published.
func newShelf(t *testing.T, text string, documents ...Document) *shelf {
	t.Helper()
	s := &shelf{t: t, documents: documents, loads: make(chan Load, 10)}
	cfg := FilesConfig{Published: func() ([]Document, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.Clone(s.documents), s.err
	}}
	if text != "" {
		cfg.Path = filepath.Join(t.TempDir(), "rules.yaml")
		must.Do(t, os.WriteFile(cfg.Path, []byte(text), 0o600))
	}
	s.files = NewFiles(cfg)
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = s.files.Watch(ctx, func(l Load) { s.loads <- l }) })
	t.Cleanup(func() { stop(); done.Wait() })
	return s
}

// put changes what is published, and returns what comes of it.
func (s *shelf) put(documents ...Document) Load {
	s.mu.Lock()
	s.documents = documents
	s.mu.Unlock()
	s.files.Look()
	return <-s.loads
}

func document(version int64, text string) Document {
	return Document{Domain: "shop", Version: version, Publication: version, Hash: HashText(text), Text: text}
}

// dump is the rules of a load as text.
func dump(l Load) string {
	var b strings.Builder
	if l.Set != nil {
		l.Set.Dump(&b)
	}
	return b.String()
}

const inFile = "domain: shop\nrules:\n  - { name: a, scope: user, limit: 1/1m }\n" +
	"  - { name: b, scope: ip, limit: 2/1m }\n"

func TestPublishedRulesLieOverFiles(t *testing.T) {
	s := newShelf(t, inFile, document(7, "domain: shop\nrules:\n  - { name: b, scope: ip, limit: 30/1m }\n"+
		"  - { name: c, scope: tenant, limit: 40/1m }\n"))
	l := <-s.loads
	if l.Set == nil || len(l.Published) != 1 {
		t.Fatalf("the load is refused: %s", l.Text())
	}
	if m := l.Published[0]; !m.Files || !slices.Equal(m.Replaced, []string{"b"}) || m.Document.Version != 7 {
		t.Errorf("the merge is told as %+v", m)
	}
	for _, name := range []string{"a", "b", "c"} {
		if !strings.Contains(dump(l), name) {
			t.Errorf("the rule %s is missing:\n%s", name, dump(l))
		}
	}
}

func TestABadDocumentLeavesTheOneBefore(t *testing.T) {
	s := newShelf(t, "", document(1, inFile))
	first := <-s.loads
	bad := s.put(document(2, "domain: shop\nrules:\n  - { name: a, scope: planet, limit: 1/1m }\n"))
	if bad.Set == nil || len(bad.Refused) != 1 || bad.Refused[0].Version != 2 ||
		bad.Published[0].Document.Version != 1 {
		t.Fatalf("a bad document: refused %+v, in use %+v", bad.Refused, bad.Published)
	}
	if !strings.Contains(bad.Text(), "redis:shop@2:3:") || dump(bad) != dump(first) {
		t.Errorf("the problems are %q", bad.Text())
	}
	for what, d := range map[string]Document{
		"a hash of another text": {Domain: "shop", Version: 3, Hash: "ab", Text: inFile},
		"another domain":         document(4, strings.Replace(inFile, "shop", "mall", 1)),
		"a file of keys":         document(5, inFile+"identity: { jwt: [{ issuer: a, jwks: \"file:keys.json\" }] }\n"),
	} {
		if l := s.put(d); len(l.Refused) != 1 {
			t.Errorf("%s is not refused: %s", what, l.Text())
		}
	}
	if good := s.put(document(6, inFile)); len(good.Refused) != 0 || good.Published[0].Document.Version != 6 {
		t.Errorf("a good document after bad ones: %+v", good)
	}
}

func TestAFlushedRedisTakesNoRulesAway(t *testing.T) {
	s := newShelf(t, "", document(1, inFile))
	<-s.loads
	s.mu.Lock()
	s.documents = nil
	s.mu.Unlock()
	s.files.Reload() // which publishes also where nothing has changed
	if l := <-s.loads; l.Set == nil || len(l.Published) != 1 {
		t.Errorf("after a flush: %s", l.Text())
	}
	s.mu.Lock()
	s.err = errors.New("away")
	s.mu.Unlock()
	s.files.Reload()
	if l := <-s.loads; l.Set == nil || len(l.Published) != 1 {
		t.Errorf("while Redis is away: %s", l.Text())
	}
}

func TestNothingPublishedIsNoRules(t *testing.T) {
	s := newShelf(t, "")
	if l := <-s.loads; l.Err == nil || !strings.Contains(l.Err.Error(), "no rules are published yet") {
		t.Errorf("nothing is published: %+v", l)
	}
	if l := s.put(document(1, inFile)); l.Set == nil {
		t.Errorf("the first document: %s", l.Text())
	}
}

// TestAWithdrawnDomainHasTheRulesOfTheFilesAlone takes a document out of force, with a file beside it and without one.
func TestAWithdrawnDomainHasTheRulesOfTheFilesAlone(t *testing.T) {
	const published = "domain: shop\nrules:\n  - { name: b, scope: user, limit: 2/1m }\n"
	for _, file := range []string{"", "domain: shop\nrules:\n  - { name: a, scope: user, limit: 1/1m }\n"} {
		s := newShelf(t, file, document(1, published))
		if load := <-s.loads; load.Set == nil || len(load.Published) != 1 {
			t.Fatalf("the document does not load: %v", load.Problems)
		}
		load := s.put(Document{Domain: "shop", Publication: 2, Withdrawn: true})
		if load.Set == nil || len(load.Published) != 0 {
			t.Fatalf("beside %q: a withdrawn document leaves %d documents, and the problems %v", file,
				len(load.Published), load.Problems)
		}
		if has := load.Set.Domain("shop") != nil; has != (file != "") {
			t.Errorf("beside %q: the domain has rules: %v", file, has)
		}
		if load = s.put(document(3, published)); len(load.Published) != 1 {
			t.Errorf("it cannot be published again: %v", load.Problems)
		}
	}
}
