package records

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

// TestRecordsAreWrittenAsEncodingJSONDoes compares random records: a repair walk that wrote another text would write
// all of them again and again.
func TestRecordsAreWrittenAsEncodingJSONDoes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	plain, empty := 0, true
	var all writer
	var last []byte
	for range 20_000 {
		var r Record
		odd := map[bool]int{false: 4, true: len(words)}[random.IntN(2) == 0]
		fill(random, odd, reflect.ValueOf(&r).Elem())
		want, err := json.Marshal(&r)
		before, kept := last, string(last)
		got, wrong := all.textOf(&r)
		if (err == nil) != (wrong == nil) || err == nil && string(got) != string(want) {
			t.Fatalf("written as %s (%v), want %s (%v)", got, wrong, want, err)
		}
		if string(before) != kept {
			t.Fatalf("the text before it, %s, has become %s", kept, before)
		}
		last = got
		w := writer{}
		w.record(&r)
		if !w.rare {
			plain++
		}
		empty = empty && string(want) == "{}"
	}
	if plain < 1000 || empty {
		t.Errorf("%d of 20000 records were written without encoding/json", plain)
	}
}

// words are texts, zones and years times: odd ones are not among the first four.
var words = []string{"", "", "gold", "ann", "b c", "día", "<x>", "a&b", `"`, `\`, "\x00", "\xff", "\u2028", "\x7f", "😀", "'"}

var (
	zones = []*time.Location{time.UTC, time.UTC, time.UTC, time.UTC, time.FixedZone("", 3600), time.FixedZone("", 90*3600)}
	years = []int{1970, 2026, 2027, 9999, 12000}
)

// fill makes a value random, of the first so many texts and times.
func fill(random *rand.Rand, of int, v reflect.Value) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		if random.IntN(2) == 0 {
			year, zone := years[random.IntN(min(of, len(years)))], zones[random.IntN(min(of, len(zones)))]
			v.Set(reflect.ValueOf(time.Date(year, 1, 2, 3, 4, 5, random.IntN(2)*random.IntN(1e9), zone)))
		}
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(words[random.IntN(of)])
	case reflect.Bool:
		v.SetBool(random.IntN(2) == 0)
	case reflect.Int64:
		v.SetInt([]int64{0, 0, 1, -1, 1 << 62, random.Int64()}[random.IntN(6)])
	case reflect.Pointer:
		if random.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(random, of, v.Elem())
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), random.IntN(3), 3))
		for i := range v.Len() {
			fill(random, of, v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(random, of, v.Field(i))
		}
	default:
		panic("a field of an unknown kind: " + v.Kind().String())
	}
}
