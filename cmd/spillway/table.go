package main

// nouns are the things that commands work with.
func nouns() []*noun {
	return []*noun{
		newUsers(), newTenants(), newTiers(), newKeys(), newBlocks(), newCounters(), newSidecars(), newUsage(), newEvents(),
		newAudit(), newReports(), newErasures(),
	}
}

func newUsers() *noun {
	return &noun{
		name: "users", one: "user", about: "The users of a control: their tiers, quotas and blocks", api: controlAPI,
		path: "users", next: []string{"after=name"}, prefix: true,
		columns: []column{
			{"NAME", "name", nil, 0}, {"TIER", "tier", nil, 0}, {"PER HOUR", "quota_hour", nil, 0}, {"BURST", "burst", nil, 0},
			{"PER DAY", "quota_day", nil, 0}, {"PER MONTH", "quota_month", nil, 0}, {"BLOCKED", "", userBlock, 0},
			{"LAST REQUEST", "last_request_at", when, wide}, {"CHANGED BY", "updated_by", nil, wide},
		},
		facts: []column{
			{"DOMAIN", "domain", nil, 0}, {"NAME", "name", nil, 0}, {"TIER", "tier", nil, 0},
			{"PER HOUR", "quota_hour", nil, 0}, {"BURST", "burst", nil, 0}, {"PER DAY", "quota_day", nil, 0},
			{"PER MONTH", "quota_month", nil, 0}, {"BLOCKED", "", userBlock, 0}, {"LAST REQUEST", "last_request_at", when, 0},
			{"REFUSED", "exceeded_count", nil, 0}, {"REVISION", "revision", nil, 0}, {"CHANGED BY", "updated_by", nil, 0},
			{"CHANGED AT", "updated_at", when, 0},
		},
		filters: []option{
			{"tier", "tier", "those of one tier alone", nil}, {"prefix", "prefix", "those whose names begin so", nil},
			{"after", "after", "those behind this name", nil},
		},
		fields: []option{
			{"tier", "tier", "the tier, or none", nil},
			{"quota-hour", "quota_hour", "requests per hour, or none", readWhole},
			{"burst", "burst", "requests at once, where there is a quota per hour; default: that quota", readWhole},
			{"quota-day", "quota_day", "requests per day, or none", readWhole},
			{"quota-month", "quota_month", "requests per calendar month, or none", readWhole},
		},
		verbs: []verb{
			{use: "list", short: "List users by name", example: "list --tier gold\nlist --prefix ann --limit 20"},
			{use: "show NAME", short: "Show a user", example: "show ann"},
			{use: "set NAME", short: "Make a user, or change it", run: setUser, example: "set ann --quota-month 1000000 --quota-hour none",
				long: `set makes a user, or changes what the flags name of one that exists. A quota takes the place of the tier's
limits. none removes what there is. Where another changes the user meanwhile, the command fails. Without a control, --tier alone asks the sidecar.`},
			{use: "rm NAME", short: "Remove a user without API keys", example: "rm ann"},
			loadVerb(),
		},
	}
}

// setUser asks the sidecar where no control is named and only the tier changes.
func setUser(s *session, args []string) error {
	for _, o := range s.noun.fields[1:] {
		if s.cmd.Flag(o.flag).Changed {
			return setNoun(s, args)
		}
	}
	if s.target.truth() == controlAPI || !s.cmd.Flag("tier").Changed {
		return setNoun(s, args)
	}
	return setKind("user")(s, args)
}

// setKind changes the tier of an identity of a kind where the truth is.
func setKind(kind string) func(s *session, args []string) error {
	return func(s *session, args []string) error {
		t, err := s.asking(s.target.truth())
		if err != nil {
			return err
		}
		return t.setTier(kind+"/"+args[0], s.flag("tier"))
	}
}

func newTenants() *noun {
	return &noun{
		name: "tenants", one: "tenant", about: "The tiers of tenants",
		fields: []option{{"tier", "tier", "the tier, or none", nil}},
		verbs: []verb{{use: "set NAME", short: "Give a tenant a tier", run: setKind("tenant"), example: "set acme --tier gold",
			long: "set gives a tenant a tier, at a sidecar: a control keeps tiers of users alone." + aboutTruth}},
	}
}

// userBlock is the block of a user.
func userBlock(value any) string {
	u, _ := value.(object)
	if !isTrue(u, "blocked") {
		return ""
	}
	return blocked(object{"until": u["blocked_until"], "reason": u["block_reason"]})
}

func newTiers() *noun {
	return &noun{
		name: "tiers", one: "tier", about: "The tiers of a control: plans, with the limits of each of their users", api: controlAPI,
		path: "tiers",
		columns: []column{
			{"NAME", "name", nil, 0}, {"DISPLAY NAME", "display_name", nil, 0}, {"LIMITS", "limits", limits, 0},
			{"PRICE", "price", nil, 0}, {"ORDER", "rank", nil, 0}, {"CHANGED BY", "updated_by", nil, 0},
			{"CHANGED AT", "updated_at", when, 0},
		},
		fields: []option{
			{"display-name", "display_name", "what people call it", nil},
			{"limit", "limits", "a limit of each of its users, or none; may be given several times", readLimit},
			{"price", "price", "its price, or none", readDecimal}, {"rank", "rank", "its place in the order of tiers", readWhole},
		},
		verbs: []verb{
			{use: "list", short: "List tiers in their order", example: "list --domain shop"},
			{use: "show NAME", short: "Show a tier", example: "show gold"},
			{use: "set NAME", short: "Make a tier, or change it", example: "set gold --limit 1000/1m --price 49 --display-name Gold",
				long: `set makes a tier, or changes what the flags name of one that exists. Limits are written as in a rule file:
100/1m,burst=200. They are in force on all sidecars within a second, where rules of the domain are published. Where
another changes the tier meanwhile, the command fails.`},
			{use: "rm NAME", short: "Remove a tier that is not in use", example: "rm gold"},
		},
	}
}
