package api

import (
	"net/http"
	"strconv"

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/control/database"
)

// ErasureList is erasures.
type ErasureList struct {
	Erasures []database.Erasure `json:"erasures"`
}

// erase serves DELETE of an identity. The leader does it; the answer is the erasure to ask about.
func (a *API) erase(c *call) (any, error) {
	_, err := c.query()
	if err != nil {
		return nil, err
	}
	s, err := c.subject()
	if err != nil {
		return nil, err
	}
	return a.Database.AskErasure(c.ctx, c.who, s)
}

func (a *API) erasures(c *call) (any, error) {
	_, before, count, err := c.page()
	if err != nil {
		return nil, err
	}
	all, err := a.Database.Erasures(c.ctx, c.caller.Domains, before, count)
	return ErasureList{listed(all)}, err
}

func (a *API) erasure(c *call) (any, error) {
	_, err := c.query()
	if err != nil {
		return nil, err
	}
	text := c.r.PathValue("erasure")
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return nil, admin.NewProblem(http.StatusBadRequest, "the erasure %q must be a number from 1", text)
	}
	e, err := a.Database.Erasure(c.ctx, id)
	if err == nil && !c.caller.may(e.Domain) {
		return nil, database.ErrNotFound
	}
	return e, err
}
