package peers

import (
	"context"
	_ "embed" // for the script
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
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
}

// show keeps this sidecar's card up to date.
func (p *Peers) show(ctx context.Context) {
	ticker := time.NewTicker(cardEvery)
	defer ticker.Stop()
	for {
		p.cfg.Fleet.Guard(p.showOnce)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			_, _ = p.atCards(leaveIn, "HDEL", p.cfg.Cards, p.id) // it is taken away soon in any case
			return
		}
	}
}

func (p *Peers) showOnce() {
	body, err := json.Marshal(p.cfg.Card())
	if err == nil {
		_, err = p.atCards(tellWithin, "EVAL", showScript, "1", p.cfg.Cards, p.id, string(body), strconv.FormatInt(cardLife.Milliseconds(), 10))
	}
	if err != nil {
		p.cfg.OnError(fmt.Errorf("show the card of this sidecar: %w", err))
	}
}

// atCards sends a command to where the cards are.
func (p *Peers) atCards(allow time.Duration, words ...string) (string, error) {
	n, _ := p.cfg.Fleet.Place(p.cfg.Cards)
	reply, err := n.Ask(allow, p.cfg.Cards, words...)
	return string(reply.Data), err
}

// Cards are those of all sidecars that live, in the order of their names.
func (p *Peers) Cards(ctx context.Context) ([]Card, error) {
	n, _ := p.cfg.Fleet.Place(p.cfg.Cards)
	reply, err := n.Ask(within(ctx), p.cfg.Cards, "EVAL", showScript, "1", p.cfg.Cards)
	if err != nil {
		return nil, fmt.Errorf("read the cards of the sidecars: %w", err)
	}
	var cards []Card
	items := reply.Items()
	for pair := range slices.Chunk(items, 2) {
		if len(pair) == 2 && json.Valid(pair[1].Data) {
			id := string(pair[0].Data)
			cards = append(cards, Card{ID: id, Self: id == p.id, Body: slices.Clone(pair[1].Data)})
		}
	}
	slices.SortFunc(cards, func(a, b Card) int { return strings.Compare(a.ID, b.ID) })
	return cards, nil
}
