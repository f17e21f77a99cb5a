package profiles

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// claimFor is how long a claim holds. Where the control plane is away for longer, operators change profiles at
// sidecars.
const claimFor = 30 * time.Second

// TakenKey names the key in Redis of a domain's identities whose blocks sidecars have changed, for a control to take
// over. It is a sorted set: the score of each is when it was noted last, in µs since the epoch.
func TakenKey(domain string) string { return "taken:" + domain }

// Claim notes for a while which domains the control plane keeps the profiles of.
func (p *Store) Claim(ctx context.Context, domains []string) error {
	text, err := json.Marshal(domains)
	if err == nil {
		_, err = p.cfg.Redis.Run(ctx, p.cfg.Claims, "SET", p.cfg.Claims, string(text), "PX", claimFor.Milliseconds())
	}
	if err != nil {
		return fmt.Errorf("note which domains the control plane keeps: %w", err)
	}
	return nil
}

// Claimed reports whether the control plane keeps the profiles of a domain now.
func (p *Store) Claimed(ctx context.Context, domain string) (bool, error) {
	if p.cfg.Redis == nil {
		return false, nil
	}
	reply, err := p.cfg.Redis.Run(ctx, p.cfg.Claims, "GET", p.cfg.Claims)
	if err != nil {
		return false, fmt.Errorf("read which domains the control plane keeps: %w", err)
	}
	var domains []string
	text, _ := reply.(string)
	err = json.Unmarshal([]byte(text), &domains)
	return err == nil && slices.Contains(domains, domain), nil
}
