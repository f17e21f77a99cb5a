package limit

// Fate is what became of a request whose caller left before the store's reply.
type Fate struct{}
