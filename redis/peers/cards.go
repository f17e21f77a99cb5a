package peers

import (
	"context"
	_ "embed" // for the script
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/redis"
)

// showScript keeps the card of a sidecar, and takes away those of the dead.
//
//go:embed show.lua
var showScript string

// Card is what one sidecar shows about itself.
type Card struct {
	ID   string          // of the sidecar
	Self bool            // it is this one
	Body json.RawMessage // as its Config.Card made it
	Read time.Time       // when
}

// show keeps this sidecar's card up to date, and what is known of the others: the more there are, the more seldom they
// are read.
func (p *Peers) show(ctx context.Context) {
	ticker := time.NewTicker(cardEvery)
	defer ticker.Stop()
	var read time.Time
	for {
		p.cfg.Redis.Guard(func() { p.showOnce(ctx) })
		if time.Since(read) >= max(readEvery, time.Duration(len(p.Known()))*readEach) {
			read = time.Now()
			p.cfg.Redis.Guard(func() { _, _ = p.Cards(ctx) }) // those that are known stay
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			last := context.WithoutCancel(ctx)
			_, _ = p.ask(last, leaveIn, p.cfg.Cards, "HDEL", p.cfg.Cards, p.id) // it is taken away soon in any case
			return
		}
	}
}

func (p *Peers) showOnce(ctx context.Context) {
	body, err := json.Marshal(p.cfg.Card())
	if err == nil {
		_, err = p.ask(ctx, tellWithin, p.cfg.Cards, "EVAL", showScript, 1, p.cfg.Cards, p.id, body,
			cardLife.Milliseconds())
	}
	if err != nil && ctx.Err() == nil {
		p.cfg.OnError(fmt.Errorf("show the card of this sidecar: %w", err))
	}
}

// CardsAt are the cards under a key, for one that is not a sidecar.
func CardsAt(ctx context.Context, c *redis.Client, key string) ([]Card, error) {
	p := &Peers{cfg: Config{Redis: c, Cards: key}}
	return p.Cards(ctx)
}

// Known are the cards that were read last, in the order of their names. It asks no server.
func (p *Peers) Known() []Card {
	if known := p.known.Load(); known != nil {
		return *known
	}
	return nil
}

// Cards are those of all sidecars that live, in the order of their names.
func (p *Peers) Cards(ctx context.Context) ([]Card, error) {
	reply, err := p.ask(ctx, tellWithin, p.cfg.Cards, "EVAL", showScript, 1, p.cfg.Cards)
	if err != nil {
		return nil, fmt.Errorf("read the cards of the sidecars: %w", err)
	}
	var cards []Card
	now := time.Now()
	pairs(reply, func(id, body string) {
		if json.Valid([]byte(body)) {
			cards = append(cards, Card{ID: id, Self: id == p.id, Body: json.RawMessage(body), Read: now})
		}
	})
	slices.SortFunc(cards, func(a, b Card) int { return strings.Compare(a.ID, b.ID) })
	p.known.Store(&cards)
	return cards, nil
}
