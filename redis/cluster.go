package redis

import "context"

type cluster struct{ loaded chan struct{} }

func newCluster(c *Client) *cluster                                { panic("redis: soon") }
func (c *cluster) server(slot int) *Server                         { panic("redis: soon") }
func (c *cluster) servers() []*Server                              { panic("redis: soon") }
func (c *cluster) close()                                          { panic("redis: soon") }
func (c *cluster) reload()                                         { panic("redis: soon") }
func (c *cluster) member(address string) *Server                   { panic("redis: soon") }
func (c *cluster) await(ctx context.Context, what <-chan struct{}) { panic("redis: soon") }
func (c *cluster) unplaced(ctx context.Context, all []*command)    { panic("redis: soon") }
func bracketed(a string) string                                    { return a }
func reachable(a, b string) string                                 { return a }
