package wire

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/spillway-mesh/spillway/test/must"
)

func message(number protowire.Number, body []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), body)
}

func TestLongFieldsAreMoved(t *testing.T) {
	for _, size := range []int{0, 1, 127, 128, 129, 16383, 16384, 1 << 21} {
		b, outer := Begin([]byte("before"), 3)
		b, inner := Begin(b, 1)
		b = append(b, strings.Repeat("v", size)...)
		b = End(End(b, inner), outer)
		want := append([]byte("before"), message(3, message(1, []byte(strings.Repeat("v", size))))...)
		if string(b) != string(want) {
			t.Errorf("a field of %d bytes is written wrongly", size)
		}
	}
}

func TestDurationsRoundUp(t *testing.T) {
	for d, want := range map[time.Duration]uint64{
		-time.Hour: 1, 0: 1, 1: 1, 400 * time.Millisecond: 1, time.Second: 1, time.Second + 1: 2,
		1900 * time.Millisecond: 2, 2 * time.Second: 2, time.Hour: 3600,
	} {
		if got := Seconds(d); got != want {
			t.Errorf("%v: %d s, want %d", d, got, want)
		}
	}
}

func TestFieldsAreReadWithAnyBytes(t *testing.T) {
	wire := message(1, message(2, []byte("a\xff")))
	wire = AppendNumber(wire, 3, 1<<40)
	f := new(Reader).Read(wire)
	if !f.Next() || f.Tag != 1<<3|2 {
		t.Fatalf("first field: tag %d, %v", f.Tag, f.Err)
	}
	inner := f.Sub()
	if !inner.Next() || inner.Text() != "a\xff" || inner.Next() || inner.Err != nil {
		t.Errorf("the message inside: %q, %v", inner.Text(), inner.Err)
	}
	if !f.Next() || f.Tag != 3<<3 || f.Number != 1<<40 {
		t.Errorf("second field: tag %d, number %d, %v", f.Tag, f.Number, f.Err)
	}
	if f.Next() || f.Err != nil {
		t.Errorf("after the end: %v", f.Err)
	}
}

func TestTextsOutliveTheMessagesThatFollow(t *testing.T) {
	var r Reader
	kept := map[string]string{}
	for i := range 100 {
		want := strings.Repeat(string(rune('a'+i%26)), 1+i*i) // from one byte to more than one allocation takes
		wire := message(1, []byte(want))
		f := r.Read(wire)
		if !f.Next() {
			t.Fatal(f.Err)
		}
		kept[want] = f.Text()
		clear(wire) // the bytes are not kept
	}
	for want, got := range kept {
		if got != want {
			t.Errorf("a text of %d bytes changed", len(want))
		}
	}
}

func TestMessagesShareAllocations(t *testing.T) {
	var r Reader
	wire := message(1, []byte("a message as it comes"))
	if allocs := testing.AllocsPerRun(1000, func() { r.Read(wire) }); allocs > 0 {
		t.Errorf("%v allocations to read a message, on average", allocs)
	}
}

func TestBytesThatAreNoMessageEndTheWalkWithAnError(t *testing.T) {
	for name, wire := range map[string][]byte{
		"cut":                   {0x0a, 0x05, 'a'},
		"a field number of 0":   {0x02, 0x00},
		"a reserved wire type":  {0x0f},
		"a varint without end":  {0x08, 0xff},
		"a tag of eleven bytes": {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
	} {
		f := new(Reader).Read(wire)
		for f.Next() {
			t.Errorf("%s: a field with tag %d", name, f.Tag)
		}
		if f.Err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestWhatLeavesIsClean(t *testing.T) {
	dirt := "a\"b\\c\r\nd\x00\xffé\x7f"
	for what, c := range map[string]struct{ got, want string }{
		"a name":           {string(AppendName(nil, dirt)), "a_b_c__d_____"},
		"a value":          {string(AppendValue(nil, dirt)), `a"b\c??d?????`},
		"a text":           {string(AppendPlain(nil, dirt)), "a\"b\\c\r\nd\uFFFDé"},
		"a policy's name":  {string(AppendPolicy(nil, dirt, -1, 0)), `"a_b_c__d_____";q=0;w=1`},
		"no policy's name": {string(AppendService(nil, "", 5, 9)), `"default";r=5;t=9`},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", what, c.got, c.want)
		}
	}
}

func TestProblemsAreJSON(t *testing.T) {
	names := make([]string, 0, 2)
	for _, name := range []string{"", "one", "one", "t\"wo", "three"} {
		names = AddName(names, name)
	}
	b := BeginProblem(nil, QuotaType, QuotaTitle, 429)
	b = AppendEscaped(b, "\"\\\r\x00\xff\x7f é")
	b = EndProblem(b, names)
	var got struct {
		Type, Title, Detail string
		Status              int
		Violated            []string `json:"violated-policies"`
	}
	err := json.Unmarshal(b, &got)
	if err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	if got.Detail != "\"\\\r\x00\uFFFD\x7f é" || got.Status != 429 || got.Type != QuotaType || got.Title != QuotaTitle {
		t.Errorf("read back as %+v", got)
	}
	if strings.Join(got.Violated, " ") != "one t_wo" {
		t.Errorf("violated policies %q", got.Violated)
	}
}

func TestLabelsAreFieldsOfAStruct(t *testing.T) {
	var got structpb.Struct
	must.Do(t, proto.Unmarshal(AppendLabel(nil, "k\xff", "v\xff\n"), &got))
	if v := got.GetFields()["k\uFFFD"].GetStringValue(); v != "v__" {
		t.Errorf("read back as %v", &got)
	}
}
