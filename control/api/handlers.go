package api

import (
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/control/publish"
	"github.com/spillway-mesh/spillway/descriptors"
)

// TierList is tiers.
type TierList struct {
	Tiers []database.Tier `json:"tiers"`
}

// UserList is users.
type UserList struct {
	Users []database.User `json:"users"`
}

// KeyList is API keys.
type KeyList struct {
	Keys []database.APIKey `json:"keys"`
}

// BlockList is blocks.
type BlockList struct {
	Blocks []database.Block `json:"blocks"`
}

// AuditList is lines of the audit.
type AuditList struct {
	Entries []database.Entry `json:"entries"`
}

func (a *API) tiers(c *call) (any, error) {
	all, err := a.Database.Tiers(c.ctx, c.domain())
	return TierList{listed(all)}, err
}

func (a *API) tier(c *call) (any, error) {
	t, err := a.Database.Tier(c.ctx, c.domain(), c.name())
	if err != nil {
		return nil, err
	}
	c.etag = t.Revision
	return t, nil
}

func (a *API) setTier(c *call) (any, error) {
	var ask database.TierRequest
	condition, err := c.readWith(&ask)
	if err == nil {
		err = checkLimits(ask.Limits)
	}
	if err != nil {
		return nil, err
	}
	t, err := a.Database.SetTier(c.ctx, c.who, c.domain(), c.name(), ask, condition)
	if err != nil {
		return nil, err
	}
	c.etag, c.made = t.Revision, t.Revision == 1
	return t, nil
}

// readWith reads the body and the condition.
func (c *call) readWith(into any) (*int64, error) {
	err := c.read(into)
	if err != nil {
		return nil, err
	}
	return c.condition()
}

// checkLimits returns what is wrong with limits.
func checkLimits(limits []admin.NewLimit) error {
	_, err := admin.ParseLimits(limits)
	if err != nil {
		return admin.NewProblem(http.StatusUnprocessableEntity, "%v", err)
	}
	return nil
}

func (a *API) deleteTier(c *call) (any, error) {
	condition, err := c.condition()
	if err != nil {
		return nil, err
	}
	return nil, a.Database.DeleteTier(c.ctx, c.who, c.domain(), c.name(), condition)
}

func (a *API) users(c *call) (any, error) {
	asked, err := c.query("after", "tier", "prefix", "limit")
	if err != nil {
		return nil, err
	}
	count, err := number(asked, "limit", pageDefault, pageMost)
	if err != nil {
		return nil, err
	}
	all, err := a.Database.Users(c.ctx, c.domain(), asked["after"], asked["tier"], asked["prefix"], int(count))
	return UserList{listed(all)}, err
}

func (a *API) user(c *call) (any, error) {
	u, err := a.Database.User(c.ctx, c.domain(), c.name())
	if err != nil {
		return nil, err
	}
	c.etag = u.Revision
	return u, nil
}

func (a *API) setUser(c *call) (any, error) {
	var ask database.UserRequest
	condition, err := c.readWith(&ask)
	if err != nil {
		return nil, err
	}
	u, err := a.Database.SetUser(c.ctx, c.who, c.domain(), c.name(), ask, condition)
	if err != nil {
		return nil, err
	}
	c.etag, c.made = u.Revision, u.Revision == 1
	return u, nil
}

func (a *API) deleteUser(c *call) (any, error) {
	condition, err := c.condition()
	if err != nil {
		return nil, err
	}
	return nil, a.Database.DeleteUser(c.ctx, c.who, c.domain(), c.name(), condition)
}

func (a *API) keys(c *call) (any, error) {
	asked, err := c.query("after", "user", "limit")
	if err != nil {
		return nil, err
	}
	count, err := number(asked, "limit", pageDefault, pageMost)
	if err != nil {
		return nil, err
	}
	all, err := a.Database.Keys(c.ctx, c.domain(), asked["after"], asked["user"], int(count))
	return KeyList{listed(all)}, err
}

func (a *API) addKey(c *call) (any, error) {
	var ask database.KeyRequest
	err := c.read(&ask)
	switch {
	case err != nil:
		return nil, err
	case ask.ID == "" || ask.User == "":
		return nil, admin.NewProblem(http.StatusUnprocessableEntity, "id and user are both needed")
	}
	err = checkEnd("expires_at", ask.ExpiresAt)
	if err == nil {
		err = checkLimits(ask.Limits)
	}
	if err != nil {
		return nil, err
	}
	k, err := a.Database.AddKey(c.ctx, c.who, c.domain(), ask)
	if err != nil {
		return nil, err
	}
	c.etag, c.made = k.Revision, true
	return k, nil
}

// checkEnd refuses an end, nil for none, that has passed or that JSON cannot write in UTC.
func checkEnd(name string, end *time.Time) error {
	switch {
	case end == nil:
		return nil
	case !end.After(time.Now()):
		return admin.NewProblem(http.StatusUnprocessableEntity, "%s has passed", name)
	case end.UTC().Year() > admin.LastYear:
		return admin.NewProblem(http.StatusUnprocessableEntity, "%s must be in the year %d of UTC or before", name, admin.LastYear)
	}
	return nil
}

func (a *API) key(c *call) (any, error) {
	k, err := a.Database.Key(c.ctx, c.domain(), c.r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	c.etag = k.Revision
	return k, nil
}

func (a *API) revokeKey(c *call) (any, error) {
	condition, err := c.condition()
	if err != nil {
		return nil, err
	}
	k, err := a.Database.RevokeKey(c.ctx, c.who, c.domain(), c.r.PathValue("id"), condition)
	if err != nil {
		return nil, err
	}
	c.etag = k.Revision
	return k, nil
}

func (a *API) blocks(c *call) (any, error) {
	asked, err := c.query("after_kind", "after", "limit")
	if err != nil {
		return nil, err
	}
	count, err := number(asked, "limit", pageDefault, pageMost)
	if err != nil {
		return nil, err
	}
	all, err := a.Database.Blocks(c.ctx, c.domain(), asked["after_kind"], asked["after"], int(count))
	return BlockList{listed(all)}, err
}

var blockKinds = []string{database.KindUser, "tenant", "ip", "api_key"}

// subject is whom the path names. An address is written as records write it.
func (c *call) subject() (database.Subject, error) {
	s := database.Subject{Domain: c.domain(), Kind: c.r.PathValue("kind"), Name: c.name()}
	if !slices.Contains(blockKinds, s.Kind) || s.Name == "" {
		return s, admin.NewProblem(http.StatusBadRequest, "name one of %s, and whom: …/blocks/user/alice", strings.Join(blockKinds, ", "))
	}
	id, err := publish.IdentityOf(s)
	if err != nil {
		return s, admin.NewProblem(http.StatusUnprocessableEntity, "%v", err)
	}
	s.Name = id.Text()
	return s, nil
}

func (a *API) block(c *call) (any, error) {
	s, err := c.subject()
	if err != nil {
		return nil, err
	}
	b, err := a.Database.Block(c.ctx, s.Domain, s.Kind, s.Name)
	if err != nil {
		return nil, err
	}
	c.etag = b.Revision
	return b, nil
}

func (a *API) setBlock(c *call) (any, error) {
	var ask database.BlockRequest
	condition, err := c.readWith(&ask)
	if err != nil {
		return nil, err
	}
	s, err := c.subject()
	if err == nil {
		err = c.checkWidth(s)
	}
	switch {
	case err != nil:
		return nil, err
	case strings.ContainsFunc(ask.Reason, unicode.IsControl) || len(ask.Reason) > 1024:
		return nil, admin.NewProblem(http.StatusUnprocessableEntity, "the reason must have at most 1024 bytes, and no control characters")
	}
	err = checkEnd("until", ask.Until)
	if err != nil {
		return nil, err
	}
	b, err := a.Database.SetBlock(c.ctx, c.who, s, ask, condition)
	if err != nil {
		return nil, err
	}
	c.etag, c.made = b.Revision, b.Revision == 1
	return b, nil
}

// The widest networks that a block may be about without the word of the caller that it is meant so: a slip of the hand
// would refuse everyone.
const (
	widest4 = 8  // bits of IPv4
	widest6 = 32 // bits of IPv6
)

// checkWidth refuses to block a network that is wide, unless the parameter wide asks for it.
func (c *call) checkWidth(s database.Subject) error {
	asked, err := c.query("wide")
	if err != nil {
		return err
	}
	if wide, given := asked["wide"]; given && wide != "true" {
		return admin.NewProblem(http.StatusUnprocessableEntity, "wide %q must be true, or left out", wide)
	}
	network, is := descriptors.ParseAddress(s.Name)
	widest := widest6
	if network.Addr().Is4() {
		widest = widest4
	}
	if s.Kind == "ip" && is && network.Bits() < widest && asked["wide"] == "" {
		return admin.NewProblem(http.StatusUnprocessableEntity,
			"%s is wider than /%d: if all of it shall be blocked, send the parameter wide=true (--wide)", s.Name, widest)
	}
	return nil
}

func (a *API) unblock(c *call) (any, error) {
	s, err := c.subject()
	if err != nil {
		return nil, err
	}
	condition, err := c.condition()
	if err != nil {
		return nil, err
	}
	return nil, a.Database.Unblock(c.ctx, c.who, s, condition)
}

func (a *API) audit(c *call) (any, error) {
	asked, before, count, err := c.page("domain", "kind", "name")
	if err != nil {
		return nil, err
	}
	if domain := asked["domain"]; domain != "" && !c.caller.may(domain) {
		return nil, c.caller.refuse("another one")
	}
	all, err := a.Database.Audit(c.ctx, c.caller.Domains, database.Subject{Domain: asked["domain"], Kind: asked["kind"], Name: asked["name"]}, before, count)
	return AuditList{listed(all)}, err
}
