package publish

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/redis/peers"
	"github.com/spillway-mesh/spillway/rules"
)

// publish makes the published rules in Redis those of the database, and announces that where they were not, or always.
func (p *Publisher) publish(ctx context.Context, always bool) error {
	wanted, err := documents(ctx, p.cfg.Database.Tasks)
	if err != nil {
		return fmt.Errorf("read the published rules: %w", err)
	}
	key := p.cfg.Keys.Shared(rules.PublishedKey)
	reply, err := p.cfg.Redis.Run(ctx, key, "HGETALL", key)
	if err != nil {
		return fmt.Errorf("read what is published in Redis: %w", err)
	}
	have := map[string]string{}
	items, _ := reply.([]any)
	for i := 0; i+1 < len(items); i += 2 {
		domain, _ := items[i].(string)
		have[domain], _ = items[i+1].(string)
	}
	for domain, text := range wanted {
		if have[domain] == text {
			continue
		}
		always = true
		_, err = p.cfg.Redis.Run(ctx, key, "HSET", key, domain, text)
		if err != nil {
			return fmt.Errorf("publish the rules of the domain %q: %w", domain, err)
		}
		p.mended.Add(1)
		p.cfg.Log.Info("published rules", "domain", domain)
	}
	if !always {
		return nil
	}
	return peers.Announce(ctx, p.cfg.Redis, p.cfg.Keys.Shared("news"), peers.TopicRules, struct{}{})
}

// documents are what sidecars take: the newest publication of each domain, with the limits of its tiers.
func documents(ctx context.Context, q database.Querier) (map[string]string, error) {
	published, err := database.Many[rules.Document](ctx, q, `SELECT DISTINCT ON (p.domain) p.domain,
	    coalesce(p.version, 0) AS version, p.publication, coalesce(v.hash, '') AS hash, coalesce(v.text, '') AS text,
	    '' AS tiers, p.version IS NULL AS withdrawn, coalesce(p.canary, 0) AS canary, p.share,
	    coalesce(c.hash, '') AS canary_hash, coalesce(c.text, '') AS canary_text
	  FROM publications p LEFT JOIN rule_versions v USING (domain, version)
	  LEFT JOIN rule_versions c ON c.domain = p.domain AND c.version = p.canary ORDER BY p.domain, p.publication DESC`)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, document := range published {
		tiers, err := database.TiersOf(ctx, q, document.Domain)
		if err != nil {
			return nil, err
		}
		if document.Withdrawn {
			tiers = nil
		}
		document.Tiers, err = database.TierRules(document.Domain, tiers)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(document)
		if err != nil {
			return nil, err
		}
		all[document.Domain] = string(text)
	}
	return all, nil
}
