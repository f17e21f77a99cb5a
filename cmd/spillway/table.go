package main

// nouns are the things that commands work with.
func nouns() []*noun {
	return []*noun{
		newUsers(), newTenants(), newTiers(), newKeys(), newBlocks(), newCounters(), newSidecars(), newUsage(),
		newEvents(),
		newAudit(), newReports(), newErasures(),
	}
}

var tierField = option{"tier", "the tier, or none", nil}

func newUsers() *noun {
	const facts = `NAME name | TIER tier | PER HOUR quota_hour | BURST burst | PER DAY quota_day | 
		PER MONTH quota_month | BLOCKED :userBlock bad | LAST REQUEST last_request_at:when wide |
		REFUSED exceeded_count wide | TIER SINCE upgraded_at:when wide | CHANGED BY updated_by wide`
	n := &noun{
		name: "users", one: "user", about: "The users of a control: their tiers, quotas and blocks", api: controlAPI,
		path: "users", next: "after=name", prefix: true,
		columns: columns(facts), facts: columns("DOMAIN domain | " + facts +
			" | CHANGED AT updated_at:when | REVISION revision"),
		filters: []option{
			{"tier", "those of one tier alone", nil}, {"prefix", "those whose names begin so", nil},
			{"after", "those behind this name", nil}, {"by", "the order: name, or last-request with the last ones first", nil},
		},
		fields: []option{
			tierField, {"quota-hour", "requests per hour, or none", readWhole},
			{"burst", "requests at once, where there is a quota per hour; default: that quota", readWhole},
			{"quota-day", "requests per day, or none", readWhole},
			{"quota-month", "requests per calendar month, or none", readWhole},
		},
	}
	n.verbs = []verb{
		{use: "list", short: "List users by name, or by their last request",
			run:     listUsers,
			example: "list --tier gold\nlist --by last-request --limit 20"},
		{use: "show NAME", short: "Show a user", example: "show ann"},
		{use: "set NAME", short: "Make a user, or change it",
			example: "set ann --quota-month 1000000 --quota-hour none",
			long: `set makes a user, or changes what the flags name of one that exists. A quota takes the place of the
tier's limits. none removes what there is. Where another changes the user meanwhile, the command fails.`},
		{use: "rm NAME", short: "Remove a user without API keys", example: "rm ann"},
		loadVerb(),
	}
	return n
}

// listUsers shows last requests where they are the order.
func listUsers(s *session, _ []string) {
	if s.flag("by") != "last-request" {
		listNoun(s, nil)
		return
	}
	s.noun.next = "cursor=next"
	for i := range s.noun.columns {
		c := &s.noun.columns[i]
		c.wide = c.wide && c.field != "last_request_at"
	}
	listNoun(s, nil)
}

// userBlock is the block of a user.
func userBlock(u object) string {
	if !isTrue(u, "blocked") {
		return ""
	}
	return blocked(object{"until": u["blocked_until"], "reason": u["block_reason"]})
}

func newTenants() *noun {
	return &noun{
		name: "tenants", one: "tenant", about: "The tiers of tenants", fields: []option{tierField},
		verbs: []verb{{use: "set NAME", short: "Give a tenant a tier", example: "set acme --tier gold",
			run:  func(s *session, args []string) { s.setTier("tenant/"+args[0], s.flag("tier")) },
			long: "set gives a tenant a tier, at a sidecar: a control keeps tiers of users alone." + aboutTruth}},
	}
}

func newTiers() *noun {
	return &noun{
		name: "tiers", one: "tier", about: "The tiers of a control: plans, with the limits of each of their users",
		api: controlAPI, path: "tiers",
		columns: columns(`NAME name | DISPLAY NAME display_name | LIMITS limits:limits | PRICE price | RANK rank |
			CHANGED BY updated_by | CHANGED AT updated_at:when`),
		fields: []option{
			{"display-name", "what people call it", nil},
			{"limit", "a limit of each of its users, or none; may be given several times", readLimit},
			{"price", "its price, or none", readDecimal}, {"rank", "its place in the order of tiers", readWhole},
		},
		verbs: []verb{
			{use: "list", short: "List tiers in their order", example: "list --domain shop"},
			{use: "show NAME", short: "Show a tier", example: "show gold"},
			{use: "set NAME", short: "Make a tier, or change it", example: "set gold --limit 1000/1m --price 49",
				long: `set makes a tier, or changes what the flags name of one that exists. Limits are written as in a
rule file: 100/1m,burst=200. They are in force on all sidecars within a second, where rules of the domain are
published. Where another changes the tier meanwhile, the command fails.`},
			{use: "rm NAME", short: "Remove a tier that is not in use", example: "rm gold"},
		},
	}
}
