package identity

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"net/netip"
	"runtime"
	"slices"
	"time"
)

// Options are what a Resolver takes besides its configuration.
type Options struct {
	Domain string           // that its tokens are counted for
	Now    func() time.Time // nil: time.Now
	// Keys returns the API key of a digest that the configuration does not have, and whether there is one. It waits at
	// most as long as the caller can. Nil: without others.
	Keys func(ctx context.Context, digest [sha256.Size]byte) (Key, bool)
}

// Resolver identifies the clients of one domain. It holds no state of its own that a request could grow, and may be
// used by many at once.
type Resolver struct {
	order     []EvidenceKind
	addresses addresses
	keys      *keyTable
	issuers   map[string][]*issuer // by iss
	sets      *KeySets             // nil: tokens yield nothing
	uses      *uses                // of its domain; nil: tokens yield nothing
	// of the issuers: verified tokens are remembered across reloads that change nothing here
	config uint64
	now    func() time.Time
	others func(ctx context.Context, digest [sha256.Size]byte) (Key, bool)
	lease  *lease
}

// New makes the Resolver of one domain. It never fails and waits for no network: a key set at a URL is fetched in the
// background, and until it is there its tokens yield nothing. A key set in a file is read at once. With sets nil,
// tokens yield nothing.
//
// The Resolver keeps its key sets in use until Close, or until it is garbage: a rule set that is replaced, or never
// came into use, need not be taken apart.
func New(cfg Config, sets *KeySets, opt Options) *Resolver {
	r := &Resolver{
		order: slices.Clone(cfg.Order), addresses: newAddresses(cfg.ClientIP), keys: newKeyTable(cfg.Keys),
		issuers: map[string][]*issuer{}, sets: sets, config: fingerprint(cfg.Issuers), now: opt.Now, others: opt.Keys,
	}
	if r.now == nil {
		r.now = time.Now
	}
	if sets == nil || !slices.Contains(r.order, JWT) {
		return r
	}
	r.lease, r.uses = &lease{sets: sets}, sets.usesOf(opt.Domain)
	for _, i := range cfg.Issuers {
		if i.Issuer == "" {
			continue
		}
		set := sets.retain(i.JWKS)
		r.lease.held = append(r.lease.held, set)
		r.issuers[i.Issuer] = append(r.issuers[i.Issuer], newIssuer(i, set, r.now))
	}
	runtime.AddCleanup(r, (*lease).release, r.lease)
	return r
}

// Close lets go of the key sets: those that no other resolver uses are refreshed no more. Requests that are still being
// resolved continue with the keys that are there. It may be called again.
func (r *Resolver) Close() {
	if r.lease != nil {
		r.lease.release()
	}
}

// Resolve returns who is asking: the first evidence of the configured order that yields an identity. One that fails
// yields nothing and the next is asked; if none of them does, the client is its address. A Refusal means that the
// request's credentials contradict each other, so that it must not be decided at all; the client's address is given
// even then.
func (r *Resolver) Resolve(ev *Evidence) (Client, *Refusal) {
	return r.ResolveWithin(context.Background(), ev)
}

// ResolveWithin is Resolve for a caller that waits no longer than ctx.
func (r *Resolver) ResolveWithin(ctx context.Context, ev *Evidence) (Client, *Refusal) {
	client := Client{Address: r.addresses.client(ev)}
	client.AddressTrusted = client.Address.IsValid()
	if ev.Verified != nil {
		return ev.Verified.at(client.Address), nil
	}
	token, key, refusal := r.credentials(ev)
	if refusal != nil {
		r.sets.countRefused()
		return client, refusal
	}
	for _, kind := range r.order {
		if r.tryEvidence(ctx, kind, token, key, ev.Principal, &client) {
			client.By = kind
			client.Authenticated = kind != IP
			return client, nil
		}
	}
	return client, nil
}

// at returns the client at an address.
func (c *Client) at(address netip.Addr) Client {
	client := *c
	client.Address, client.AddressTrusted = address, address.IsValid()
	return client
}

// credentials reads what the kinds of the order need. All of them are read before any is asked: two tokens are refused
// even where an API key stands before them.
func (r *Resolver) credentials(ev *Evidence) (token, key string, refusal *Refusal) {
	for _, kind := range r.order {
		switch kind {
		case JWT:
			token, refusal = readToken(ev)
		case APIKey:
			key, refusal = r.keys.keyOf(ev)
		}
		if refusal != nil {
			return "", "", refusal
		}
	}
	return token, key, nil
}

// tryEvidence reports whether one kind of evidence yields an identity, and fills it in.
func (r *Resolver) tryEvidence(ctx context.Context, kind EvidenceKind, token, key, principal string,
	client *Client) bool {
	switch kind {
	case JWT:
		return r.askToken(token, client)
	case APIKey:
		return r.keys.lookUp(key, r.now, client) || r.others != nil && r.askOthers(ctx, key, client)
	case MTLS:
		client.User = principal
		return principal != ""
	default:
		return client.Address.IsValid()
	}
}

// askOthers asks for a key that the configuration does not have.
func (r *Resolver) askOthers(ctx context.Context, key string, client *Client) bool {
	if key == "" || len(key) > maxCredential {
		return false
	}
	digest := sha256.Sum256([]byte(key))
	if r.keys.has(&digest) {
		return false // it is revoked or has expired
	}
	k, known := r.others(ctx, digest)
	if !known || !k.good(r.now) {
		return false
	}
	client.User, client.Tenant, client.Tier, client.Key = k.User, k.Tenant, k.Tier, k.ID
	return true
}

// askToken asks for a token, of which many requests carry the same: what it yielded is remembered for a while.
func (r *Resolver) askToken(token string, client *Client) bool {
	if token == "" || len(r.issuers) == 0 {
		return false
	}
	now := r.now()
	key := cacheKey{config: r.config, token: sha256.Sum256([]byte(token))}
	g, known := r.sets.recall(key, now, r.uses)
	if !known {
		g = r.verify(token, now)
		r.sets.remember(key, g, now, r.uses)
	}
	client.User, client.Tenant, client.Tier = g.user, g.tenant, g.tier
	return g.user != ""
}

// fingerprint differs for different configurations of issuers.
func fingerprint(issuers []Issuer) uint64 {
	text, err := json.Marshal(issuers)
	if err != nil {
		panic("identity: issuers hold nothing but strings: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return binary.BigEndian.Uint64(sum[:8])
}
