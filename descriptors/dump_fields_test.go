package descriptors

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/limit"
)

// everything is a domain with one of each thing that a rule file can hold.
func everything() *Domain {
	bucket := Limit{Limit: limit.Limit{Algorithm: limit.TokenBucket, Count: 5, Burst: 5, Window: time.Minute},
		Unit: Minute, Multiplier: 1}
	return &Domain{
		Name: "shop",
		Identity: &identity.Config{Issuers: []identity.Issuer{{}},
			Keys: identity.KeysConfig{Keys: []identity.Key{{ID: "k"}}}},
		Costs: []Cost{{Cost: 1}},
		Rules: []Rule{{
			Name: "r", HasScope: true, Limits: []Limit{bucket}, Response: &Response{Headers: []Header{{"x-a", "b"}}},
			Penalty: &Penalty{Multipliers: []int{1}},
			Match: Conditions{Endpoints: []Pattern{{Text: "/a"}},
				CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
		}},
		Defaults: &Rule{Name: "default", HasScope: true, Limits: []Limit{bucket},
			Response: &Response{Headers: []Header{{"x-a", "b"}}}, Penalty: &Penalty{Multipliers: []int{1}},
			Match: Conditions{Endpoints: []Pattern{{Text: "/a"}},
				CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}},
		Users:   []Account{{Name: "alice", Tier: "pro", Limits: []Limit{bucket}}},
		Tenants: []Account{{Name: "acme", Tier: "pro", Limits: []Limit{bucket}}},
		Keys:    []Account{{Name: "ci", Limits: []Limit{bucket}}},
		Tree: []Node{
			{Key: "a",
				Limits: []Limit{{Limit: bucket.Limit, Unit: Minute, Multiplier: 1, Replaces: []Replaced{{Name: "o"}}}}},
			{Key: "exempt"},
		},
	}
}

// unseen are fields that a page need not show: where something was written, and what another field shows.
var unseen = []string{"File", "Line", "Column", "CountUnset", "Domain.Keys[0].Tier"}

// TestEveryFieldIsDumped changes each field of a domain, whichever there are, and holds that the page changes.
func TestEveryFieldIsDumped(t *testing.T) {
	before := dumpOf(everything())
	count := len(leaves("Domain", reflect.ValueOf(everything()).Elem()))
	if count < 100 {
		t.Fatalf("only %d fields found", count)
	}
	for i := range count {
		d := everything()
		leaf := leaves("Domain", reflect.ValueOf(d).Elem())[i]
		if slices.ContainsFunc(unseen, func(name string) bool { return strings.HasSuffix(leaf.path, name) }) {
			continue
		}
		leaf.change(t)
		if dumpOf(d) == before {
			t.Errorf("the page does not show %s", leaf.path)
		}
	}
}

func dumpOf(d *Domain) string {
	var out strings.Builder
	compiled := compileDomain(d, Options{Now: time.Now}, keys.NewWriter(nil))
	(&Set{domains: map[string]*CompiledDomain{d.Name: compiled}}).Dump(
		&out)
	return out.String()
}

// leaf is one field, by where it stands.
type leaf struct {
	path  string
	value reflect.Value
}

// leaves returns all fields below a value that are not groups of fields.
func leaves(path string, v reflect.Value) (all []leaf) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return leaves(path, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			all = append(all, leaves(fmt.Sprintf("%s[%d]", path, i), v.Index(i))...)
		}
		if v.Len() > 0 {
			return all
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() || v.Type() == reflect.TypeFor[netip.Prefix]() {
			break
		}
		for i := range v.NumField() {
			all = append(all, leaves(path+"."+v.Type().Field(i).Name, v.Field(i))...)
		}
		return all
	}
	return append(all, leaf{path, v})
}

// change gives the field another value.
func (l leaf) change(t *testing.T) {
	t.Helper()
	v := l.value
	switch value := v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(value.Add(time.Hour)))
		return
	case netip.Prefix:
		v.Set(reflect.ValueOf(netip.MustParsePrefix("192.0.2.0/24")))
		return
	}
	switch {
	case v.CanInt():
		v.SetInt(v.Int() + 1)
	case v.CanUint():
		v.SetUint(v.Uint() + 1)
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.Kind() == reflect.String:
		v.SetString(v.String() + "x")
	case v.Kind() == reflect.Slice:
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
	case v.Kind() == reflect.Array:
		v.Index(0).SetUint(1)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case v.Kind() == reflect.Map:
		filled := reflect.MakeMap(v.Type())
		filled.SetMapIndex(reflect.ValueOf("key").Convert(v.Type().Key()), reflect.Zero(v.Type().Elem()))
		v.Set(filled)
	default:
		t.Fatalf("%s is a %s, which this test cannot change", l.path, v.Kind())
	}
}
