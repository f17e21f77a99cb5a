package publish

import (
	"context"
	"embed"
	"encoding/json"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/redis/peers"
)

// Sources is this file, whose comments describe what is answered.
//
//go:embed trials.go
var Sources embed.FS

// Trial is what the sidecars with one version have decided since they use it beside the other one.
type Trial struct {
	Version  int64 `json:"version"`
	Canary   bool  `json:"canary"`
	Sidecars int   `json:"sidecars"` // that live and use it
	Requests int64 `json:"requests"` // of the domain, on these sidecars
	Refused  int64 `json:"refused"`  // of these requests
}

// Trials sums up what the sidecars with each version of a canary show on their cards.
func (p *Publisher) Trials(ctx context.Context, of *database.Publication) ([]Trial, error) {
	cards, err := peers.CardsAt(ctx, p.cfg.Redis, p.cfg.Keys.Shared("cards"))
	if err != nil {
		return nil, err
	}
	all := []Trial{{Version: of.Version}, {Version: of.Canary, Canary: true}}
	for _, card := range cards {
		var shown struct {
			Trials []struct {
				Domain      string
				Publication int64
				Trial
			}
		}
		if json.Unmarshal(card.Body, &shown) != nil {
			continue
		}
		for _, one := range shown.Trials {
			for i := range all {
				sum := &all[i]
				if one.Domain == of.Domain && one.Publication == of.Publication && one.Version == sum.Version {
					sum.Sidecars++
					sum.Requests += one.Requests
					sum.Refused += one.Refused
				}
			}
		}
	}
	return all, nil
}
