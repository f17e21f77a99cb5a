package redis

// Subscribe calls message with each text that is published on a channel, on connections of its own, until stop is called, which waits
// for the end. A lost subscription is made again. gap is called when a subscription begins: what was published before it was missed.
// Of a ring it subscribes to every server. The functions are called from one goroutine per server and must not block for long.
func (c *Client) Subscribe(channel string, message func(text string), gap func()) (stop func()) {
	panic("redis: soon")
}
