package engine

// Stats is what an Engine counts about itself.
type Stats struct {
	Waiting    int64 // throttled answers that are held now
	TurnedAway int64 // requests that were refused because Waiters others waited

	Owed                int64 // counters now for which the store is owed what was admitted without it
	ChargedBack         int64 // tokens that the store was charged for that later
	ChargeBackLost      int64 // tokens that it may or may not have been charged, because the reply was lost: never sent again
	OwedDropped         int64 // tokens that are not charged back because Debts other counters were owed
	ReservationsDropped int64 // reservations of post-paid requests that were not kept, because there were too many
	GiveBackFailed      int64 // charges of refused requests that stay charged, because the store could not take them back
}

// Stats tells of the throttled answers, and of what is between this sidecar and the store.
func (e *Engine) Stats() Stats {
	var s Stats
	e.queue.stats(&s)
	e.debts.stats(&s)
	e.reserved.stats(&s)
	s.GiveBackFailed = e.unreturned.Load()
	return s
}

func (q *queue) stats(s *Stats) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s.Waiting, s.TurnedAway = int64(len(q.waiting)), q.turned.Load()
}

func (l *ledger) stats(s *Stats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Owed, s.ChargedBack, s.ChargeBackLost, s.OwedDropped = int64(len(l.debts)), l.chargedBack, l.lost, l.dropped
}
