package api

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/control/publish"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/httpapi"
	"github.com/spillway-mesh/spillway/profiles"
)

// named is the path of a tier or a user.
type named struct {
	inDomain
	Name string `path:"name" in:"1..1024"` // the name
}

// changeNamed asks for a change of a tier or a user.
type changeNamed struct {
	named
	httpapi.Condition
}

// setTier is the inputs of a tier.
type setTier struct {
	changeNamed
	httpapi.Sent[database.TierRequest]
}

// setUser is the inputs of a user.
type setUser struct {
	changeNamed
	httpapi.Sent[database.UserRequest]
}

// inKey is the path of an API key.
type inKey struct {
	inDomain
	ID string `path:"id" in:"1..1024"` // the id of the key
}

// changeKey asks for a change of an API key.
type changeKey struct {
	inKey
	httpapi.Condition
}

// newKey is the inputs of a new API key.
type newKey struct {
	inDomain
	httpapi.Sent[database.KeyRequest]
}

// setKey is the inputs of a change of an API key.
type setKey struct {
	changeKey
	httpapi.Sent[database.KeyChange]
}

// rotateKey is the inputs of an API key in place of another one.
type rotateKey struct {
	changeKey
	httpapi.Sent[database.KeyRotation]
}

// list asks for a list that begins behind a name.
type list struct {
	inDomain
	After string `query:"after"`                       // the name behind which the list begins
	Limit int    `query:"limit" in:"1..1000" or:"100"` // how many
}

// userSearch asks for users.
type userSearch struct {
	list
	Tier   string `query:"tier"`                                 // of one tier
	Prefix string `query:"prefix"`                               // what their names begin with
	By     string `query:"by" one:"name last-request" or:"name"` // the order; last-request: the last requests first
	Cursor string `query:"cursor"`                               // the next of an answer, in the order of last requests
}

// keySearch asks for API keys.
type keySearch struct {
	list
	User string `query:"user"` // of one user
}

// blockSearch asks for blocks.
type blockSearch struct {
	list
	AfterKind string `query:"after_kind"` // the kind of after
}

// inIdentity is the path of an identity.
type inIdentity struct {
	inDomain
	Kind string `path:"kind" one:"user tenant ip api_key"` // what the name is of
	Name string `path:"name" in:"1..1024"`                 // the name, or an address or a network
}

// changeBlock asks for a change of a block.
type changeBlock struct {
	inIdentity
	httpapi.Condition
}

// setBlock is the inputs of a block.
type setBlock struct {
	changeBlock
	httpapi.Sent[database.BlockRequest]
	Wide string `query:"wide" one:"true"` // the network may be wide
}

// TierList is tiers.
type TierList struct {
	Tiers []database.Tier `json:"tiers"`
}

// UserList is users.
type UserList struct {
	Users []database.User `json:"users"`
	Next  string          `json:"next,omitempty"` // the cursor of what follows, in the order of last requests
}

// KeyList is API keys.
type KeyList struct {
	Keys []database.APIKey `json:"keys"`
}

// BlockList is blocks.
type BlockList struct {
	Blocks []database.Block `json:"blocks"`
}

// addProfiles adds what reads tiers, users, API keys and blocks.
func (a *API) addProfiles(api *httpapi.API) {
	d := a.Database
	httpapi.Add(api, get(domainPath+"/tiers", "Tiers."), func(ctx context.Context, in *inDomain) (*TierList, error) {
		all, err := d.Tiers(ctx, in.Domain)
		return &TierList{all}, err
	})
	httpapi.Add(api, get(domainPath+"/tiers/{name}", "A tier."),
		func(ctx context.Context, in *named) (*database.Tier, error) {
			return d.Tier(ctx, in.Domain, in.Name)
		})
	httpapi.Add(api, get(domainPath+"/users", "Users, by name or by their last request."), a.users)
	httpapi.Add(api, get(domainPath+"/users/{name}", "A user."),
		func(ctx context.Context, in *named) (*database.User, error) {
			return d.User(ctx, in.Domain, in.Name)
		})
	httpapi.Add(api, get(domainPath+"/keys", "API keys, by id."),
		func(ctx context.Context, in *keySearch) (*KeyList, error) {
			all, err := d.Keys(ctx, in.Domain, in.After, in.User, in.Limit)
			return &KeyList{all}, err
		})
	httpapi.Add(api, get(domainPath+"/keys/{id}", "An API key."),
		func(ctx context.Context, in *inKey) (*database.APIKey, error) {
			return d.Key(ctx, in.Domain, in.ID)
		})
	httpapi.Add(api, get(domainPath+"/blocks", "Blocks in force, by kind and name."),
		func(ctx context.Context, in *blockSearch) (*BlockList, error) {
			all, err := d.Blocks(ctx, in.Domain, in.AfterKind, in.After, in.Limit)
			return &BlockList{all}, err
		})
	httpapi.Add(api, get(domainPath+"/blocks/{kind}/{name...}", "The block of an identity."),
		a.block)
}

// users serves GET …/users.
func (a *API) users(ctx context.Context, in *userSearch) (list *UserList, err error) {
	f := database.UserFilter{Domain: in.Domain, Tier: in.Tier, Prefix: in.Prefix, After: in.After,
		LastRequest: in.By == "last-request"}
	switch {
	case f.LastRequest && in.After != "":
		return nil, httpapi.Cannot("after is for the order of names: send the next of an answer as the cursor")
	case !f.LastRequest && in.Cursor != "":
		return nil, httpapi.Cannot("the cursor is for the order of last requests: send the last name as after")
	}
	f.Behind, err = userPlace(in.Cursor)
	if err != nil {
		return nil, err
	}
	list = &UserList{}
	list.Users, err = a.Database.Users(ctx, f, in.Limit)
	if f.LastRequest && len(list.Users) == in.Limit {
		last := &list.Users[in.Limit-1]
		list.Next = noRequest + "." + last.Name
		if last.LastRequestAt != nil {
			list.Next = fmt.Sprintf("%d.%s", last.LastRequestAt.UnixMicro(), last.Name)
		}
	}
	return list, err
}

// noRequest is what the cursor of a user without a request begins with.
const noRequest = "never"

// userPlace reads a cursor.
func userPlace(cursor string) (*database.UserPlace, error) {
	if cursor == "" {
		return nil, nil
	}
	at, name, both := strings.Cut(cursor, ".")
	if both && at == noRequest {
		return &database.UserPlace{Name: name}, nil
	}
	micros, err := strconv.ParseInt(at, 10, 64)
	if !both || err != nil || micros < 0 || micros >= 1<<57 {
		return nil, httpapi.Cannot("the cursor must be the next of an answer")
	}
	instant := time.UnixMicro(micros)
	return &database.UserPlace{LastRequest: &instant, Name: name}, nil
}

// block serves GET …/blocks/{kind}/{name}.
func (a *API) block(ctx context.Context, in *inIdentity) (*database.Block, error) {
	s, err := in.subject()
	if err != nil {
		return nil, err
	}
	return a.Database.Block(ctx, s.Domain, s.Kind, s.Name)
}

// addChanges adds what changes tiers, users, API keys and blocks.
func (a *API) addChanges(api *httpapi.API) {
	d := a.Database
	httpapi.Add(api, change("PUT", "/tiers/{name}", httpapi.Administer, "Make a tier what it shall be."), a.setTier)
	httpapi.Add(api, change("DELETE", "/tiers/{name}", httpapi.Administer, "Remove a tier that is not in use."),
		func(ctx context.Context, in *changeNamed) (*httpapi.None, error) {
			return nil, d.DeleteTier(ctx, actor(ctx), in.Domain, in.Name, in.Revision())
		})
	httpapi.Add(api, change("PUT", "/users/{name}", httpapi.Operate, "Make a user what it shall be."),
		func(ctx context.Context, in *setUser) (*database.User, error) {
			return d.SetUser(ctx, actor(ctx), in.Domain, in.Name, in.Body, in.Revision())
		})
	httpapi.Add(api, change("DELETE", "/users/{name}", httpapi.Operate, "Remove a user without API keys."),
		func(ctx context.Context, in *changeNamed) (*httpapi.None, error) {
			return nil, d.DeleteUser(ctx, actor(ctx), in.Domain, in.Name, in.Revision())
		})
	httpapi.Add(api, change("POST", "/keys", httpapi.Operate,
		"Make an API key. The answer has its secret, which is shown this once."), a.addKey)
	set := change("PUT", "/keys/{id}", httpapi.Operate, "Make an API key what it shall be.")
	set.Made = false
	httpapi.Add(api, set, a.setKey)
	httpapi.Add(api, change("POST", "/keys/{id}/rotate", httpapi.Operate,
		"Make an API key in place of another one, which ends. The answer has its secret, which is shown this once."),
		a.rotateKey)
	httpapi.Add(api, change("DELETE", "/keys/{id}", httpapi.Operate, "Revoke an API key. It stays in the lists."),
		func(ctx context.Context, in *changeKey) (*database.APIKey, error) {
			return d.RevokeKey(ctx, actor(ctx), in.Domain, in.ID, in.Revision())
		})
	httpapi.Add(api, change("PUT", "/blocks/{kind}/{name...}", httpapi.Operate,
		"Block an identity. A network wider than /8, of IPv6 /32, needs the parameter wide."), a.setBlock)
	httpapi.Add(api, change("DELETE", "/blocks/{kind}/{name...}", httpapi.Operate, "End a block."),
		func(ctx context.Context, in *changeBlock) (*httpapi.None, error) {
			s, err := in.subject()
			if err != nil {
				return nil, err
			}
			return nil, d.Unblock(ctx, actor(ctx), s, in.Revision())
		})
}

// setTier serves PUT …/tiers/{name}.
func (a *API) setTier(ctx context.Context, in *setTier) (*database.Tier, error) {
	err := checkLimits(in.Body.Limits)
	if err != nil {
		return nil, err
	}
	return a.Database.SetTier(ctx, actor(ctx), in.Domain, in.Name, in.Body, in.Revision())
}

// checkLimits returns what is wrong with limits.
func checkLimits(limits []profiles.LimitRequest) error {
	_, err := profiles.ReadLimits(limits)
	if err != nil {
		return httpapi.Cannot("%v", err)
	}
	return nil
}

// addKey serves POST …/keys.
func (a *API) addKey(ctx context.Context, in *newKey) (*database.NewKey, error) {
	err := checkEnd("expires_at", in.Body.ExpiresAt)
	if err == nil {
		err = checkLimits(in.Body.Limits)
	}
	if err != nil {
		return nil, err
	}
	return a.Database.AddKey(ctx, actor(ctx), in.Domain, in.Body)
}

// setKey serves PUT …/keys/{id}.
func (a *API) setKey(ctx context.Context, in *setKey) (*database.APIKey, error) {
	err := checkEnd("expires_at", in.Body.ExpiresAt)
	if err == nil {
		err = checkLimits(in.Body.Limits)
	}
	if err != nil {
		return nil, err
	}
	return a.Database.SetKey(ctx, actor(ctx), in.Domain, in.ID, in.Body, in.Revision())
}

// rotateKey serves POST …/keys/{id}/rotate.
func (a *API) rotateKey(ctx context.Context, in *rotateKey) (*database.NewKey, error) {
	err := checkEnd("expires_at", in.Body.ExpiresAt)
	if err == nil {
		err = checkEnd("old_ends_at", in.Body.OldEndsAt)
	}
	if err != nil {
		return nil, err
	}
	return a.Database.RotateKey(ctx, actor(ctx), in.Domain, in.ID, in.Body, in.Revision())
}

// checkEnd refuses an end, nil for none, that has passed or that JSON cannot write in UTC.
func checkEnd(name string, end *time.Time) error {
	switch {
	case end == nil:
		return nil
	case !end.After(time.Now()):
		return httpapi.Cannot("%s has passed", name)
	case end.UTC().Year() > httpapi.LastYear:
		return httpapi.Cannot("%s must be in the year %d of UTC or before", name, httpapi.LastYear)
	}
	return nil
}

// subject is whom the path names. An address is written as profiles write it.
func (in *inIdentity) subject() (database.Subject, error) {
	s := database.Subject{Domain: in.Domain, Kind: in.Kind, Name: in.Name}
	id, err := publish.IdentityOf(s)
	if err != nil {
		return s, httpapi.Cannot("%v", err)
	}
	s.Name = id.Text()
	return s, nil
}

// setBlock serves PUT …/blocks/{kind}/{name}.
func (a *API) setBlock(ctx context.Context, in *setBlock) (*database.Block, error) {
	s, err := in.subject()
	if err == nil {
		err = in.checkWidth(s)
	}
	if err == nil {
		err = checkEnd("until", in.Body.Until)
	}
	if err != nil {
		return nil, err
	}
	if strings.ContainsFunc(in.Body.Reason, unicode.IsControl) || len(in.Body.Reason) > 1024 {
		return nil, httpapi.Cannot("the reason must have at most 1024 bytes, and no control characters")
	}
	return a.Database.SetBlock(ctx, actor(ctx), s, in.Body, in.Revision())
}

// The widest networks that a block may be about without the word of the caller that it is meant so: a slip of the hand
// would refuse everyone.
const (
	widest4 = 8  // bits of IPv4
	widest6 = 32 // bits of IPv6
)

// checkWidth refuses to block a network that is wide, unless the parameter wide asks for it.
func (in *setBlock) checkWidth(s database.Subject) error {
	network, is := descriptors.ParseAddress(s.Name)
	widest := widest6
	if network.Addr().Is4() {
		widest = widest4
	}
	if s.Kind == "ip" && is && network.Bits() < widest && in.Wide == "" {
		return httpapi.Cannot("%s is wider than /%d: to block all of it, send the parameter wide=true (--wide)", s.Name,
			widest)
	}
	return nil
}
