package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/control/publish"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/httpapi"
	"github.com/spillway-mesh/spillway/rules"
	"github.com/spillway-mesh/spillway/whatif/rulediff"
)

// history asks for a list that is read backwards.
type history struct {
	Before int64 `query:"before" in:"1.."`             // the number before which the list begins
	Limit  int   `query:"limit" in:"1..1000" or:"100"` // how many
}

// domainHistory asks for a list of a domain that is read backwards.
type domainHistory struct {
	inDomain
	history
}

// inVersion is the path of a version.
type inVersion struct {
	inDomain
	Version int64 `path:"version" in:"1.."` // the number of the version
}

// twoVersions are those that are compared.
type twoVersions struct {
	inDomain
	From int64 `query:"from,required" in:"1.."` // the number of a version
	To   int64 `query:"to,required" in:"1.."`   // the number of a version
}

// changeDomain asks for a change of what a domain has in force.
type changeDomain struct {
	inDomain
	httpapi.Condition
}

// newVersion is the inputs of a new version.
type newVersion struct {
	changeDomain
	httpapi.Sent[VersionRequest]
}

// newPublication is the inputs of a publication.
type newPublication struct {
	changeDomain
	httpapi.Sent[PublishRequest]
}

// PublicationList is what is in force in each domain.
type PublicationList struct {
	Domains []database.Publication `json:"domains"`
}

// PublicationHistory is publications of one domain.
type PublicationHistory struct {
	Publications []database.Publication `json:"publications"`
}

// VersionList is versions.
type VersionList struct {
	Versions []database.Version `json:"versions"`
}

// VersionRequest is a rule file.
type VersionRequest struct {
	Text    string `json:"text"`
	Note    string `json:"note,omitempty"`
	Publish *bool  `json:"publish,omitempty"` // default: true
}

// VersionAdded is a new version, and its publication where it was published.
type VersionAdded struct {
	Version     *database.Version     `json:"version"`
	Publication *database.Publication `json:"publication" etag:""`
}

// PublishRequest asks to put a version into force.
type PublishRequest struct {
	Version int64  `json:"version"`
	Canary  int    `json:"canary,omitempty" in:"1..99"` // percent of the sidecars that use it; none: all
	Note    string `json:"note,omitempty"`
}

func (a *API) addRules(api *httpapi.API) {
	domains := get("/v1/domains", "What is in force in each domain.")
	domains.AnyDomain = true
	httpapi.Add(api, domains, a.domains)
	httpapi.Add(api, get(domainPath+"/versions", "Versions of the rules, the newest first."),
		func(ctx context.Context, in *domainHistory) (*VersionList, error) {
			all, err := a.Database.Versions(ctx, in.Domain, in.Before, in.Limit)
			return &VersionList{all}, err
		})
	httpapi.Add(api, change("POST", "/versions", httpapi.Administer,
		"Check a rule file, keep it as a version and, unless told otherwise, publish it."), a.addVersion)
	httpapi.Add(api, get(domainPath+"/versions/{version}", "A version with its text."),
		func(ctx context.Context, in *inVersion) (*database.VersionText, error) {
			return a.Database.VersionOf(ctx, in.Domain, in.Version)
		})
	httpapi.Add(api, get(domainPath+"/published", "What is in force."), a.published)
	put := change("PUT", "/published", httpapi.Administer, "Publish a version; an old one is a roll back.")
	put.Made = false
	httpapi.Add(api, put, func(ctx context.Context, in *newPublication) (*database.Publication, error) {
		return a.Database.Publish(ctx, actor(ctx), in.Domain, in.Body.Version, in.Body.Canary, in.Body.Note,
			in.Revision())
	})
	httpapi.Add(api, change("DELETE", "/published", httpapi.Administer,
		"Take the rules of the domain out of force. Its versions stay."),
		func(ctx context.Context, in *changeDomain) (*database.Publication, error) {
			return a.Database.Unpublish(ctx, actor(ctx), in.Domain, in.Revision())
		})
	httpapi.Add(api, get(domainPath+"/publications", "What was in force from when, the newest first."),
		func(ctx context.Context, in *domainHistory) (*PublicationHistory, error) {
			all, err := a.Database.Publications(ctx, in.Domain, in.Before, in.Limit)
			return &PublicationHistory{all}, err
		})
	httpapi.Add(api, get(domainPath+"/canary", "How sidecars with each version of a canary decide."), a.canary)
	httpapi.Add(api, get(domainPath+"/diff", "What a change from one version to another means."), a.diff)
}

// domains serves GET /v1/domains.
func (a *API) domains(ctx context.Context, _ *httpapi.None) (*PublicationList, error) {
	all, err := a.Database.Published(ctx, "")
	all = slices.DeleteFunc(all, func(p database.Publication) bool { return !httpapi.CallerOf(ctx).May(p.Domain) })
	return &PublicationList{all}, err
}

// addVersion serves POST …/versions.
func (a *API) addVersion(ctx context.Context, in *newVersion) (*VersionAdded, error) {
	publish := in.Body.Publish == nil || *in.Body.Publish
	v, p, err := a.Database.AddVersion(ctx, actor(ctx), in.Domain, in.Body.Text, in.Body.Note, publish, in.Revision())
	if err != nil {
		return nil, err
	}
	return &VersionAdded{v, p}, nil
}

// published serves GET …/published.
func (a *API) published(ctx context.Context, in *inDomain) (*database.Publication, error) {
	all, err := a.Database.Published(ctx, in.Domain)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, database.ErrNotFound
	}
	return &all[0], nil
}

// CanaryView is what sidecars decide by each of the two versions of a canary.
type CanaryView struct {
	Publication *database.Publication `json:"publication"`
	Versions    []publish.Trial       `json:"versions"` // none: no canary runs
}

// canary serves GET …/canary.
func (a *API) canary(ctx context.Context, in *inDomain) (*CanaryView, error) {
	p, err := a.published(ctx, in)
	if err != nil {
		return nil, err
	}
	view := &CanaryView{Publication: p}
	if p.Canary > 0 {
		view.Versions, err = a.Publisher.Trials(ctx, p)
	}
	if err != nil {
		return nil, httpapi.NewProblem(http.StatusServiceUnavailable, "Redis does not answer, and has the cards of "+
			"the sidecars: try again")
	}
	return view, nil
}

// diff serves GET …/diff.
func (a *API) diff(ctx context.Context, in *twoVersions) (*rulediff.Diff, error) {
	var versions [2]*database.VersionText
	for i, n := range []int64{in.From, in.To} {
		var err error
		versions[i], err = a.Database.VersionOf(ctx, in.Domain, n)
		if err != nil {
			return nil, err
		}
	}
	return a.compare(ctx, versions)
}

// compare compares two versions, one comparison at a time: large ones take seconds of a processor, and much memory.
func (a *API) compare(ctx context.Context, versions [2]*database.VersionText) (*rulediff.Diff, error) {
	select {
	case a.comparing <- struct{}{}:
		defer func() { <-a.comparing }()
	case <-ctx.Done():
		return nil, tooMuch()
	}
	var loads [2]rules.Load
	for i, v := range versions {
		if ctx.Err() != nil {
			return nil, tooMuch()
		}
		document := rules.Document{Domain: v.Domain, Hash: v.Hash, Text: v.Text,
			Name: fmt.Sprintf("version %d", v.Version.Version)}
		loads[i] = rules.CheckPublished(rules.FilesConfig{}, document)
		if loads[i].Rejected() {
			warns := func(p descriptors.Problem) bool { return p.Warning }
			return nil, &database.Refused{Problems: slices.DeleteFunc(loads[i].Problems, warns)}
		}
	}
	d, err := rulediff.Compare(ctx, loads[0], loads[1])
	if err != nil {
		return nil, tooMuch()
	}
	return d, nil
}

// tooMuch is the problem of a comparison that has not ended in time.
func tooMuch() error {
	return httpapi.NewProblem(http.StatusServiceUnavailable,
		"the comparison needs more than %v: try again, or compare the files with spillway diff", AnswerWithin)
}
