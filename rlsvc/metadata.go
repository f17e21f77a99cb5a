package rlsvc

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/door/wire"
	"github.com/spillway-mesh/spillway/engine"
)

// Field numbers of google.protobuf.Value and ListValue.
const (
	valueNull   = 1
	valueNumber = 2
	valueString = 3
	valueBool   = 4
	valueStruct = 5
	valueList   = 6

	listValues = 1
)

// appendMetadata writes what Envoy shows to later filters and to its access log: always that a decision was made
// without the shared store, and with DynamicMetadata the fields of the reference server.
func (s *Service) appendMetadata(b []byte, req *descriptors.Request, v *engine.Verdict) []byte {
	if v.Degraded == "" && !s.config.DynamicMetadata {
		return b
	}
	b, mark := wire.Begin(b, answerMetadata)
	if v.Degraded != "" {
		b = appendField(b, "degraded", v.Degraded)
	}
	if s.config.DynamicMetadata {
		b = appendRequest(b, req)
		b = appendPassed(b, v)
	}
	return wire.End(b, mark)
}

// appendRequest writes the request into the answer.
func appendRequest(b []byte, req *descriptors.Request) []byte {
	b = appendField(b, "domain", req.Domain)
	if req.Hits != 0 {
		b = appendField(b, "hitsAddend", float64(req.Hits))
	}
	b, entry, value := wire.BeginField(b, "descriptors")
	b, list := wire.Begin(b, valueList)
	for i := range req.Descriptors {
		b = appendDescriptor(b, &req.Descriptors[i])
	}
	return wire.EndField(wire.End(b, list), entry, value)
}

func appendDescriptor(b []byte, d *descriptors.Descriptor) []byte {
	b, item := wire.Begin(b, listValues)
	b, fields := wire.Begin(b, valueStruct)
	b, entry, value := wire.BeginField(b, "entries")
	b, list := wire.Begin(b, valueList)
	for _, e := range d.Entries {
		var text int
		b, text = wire.Begin(b, listValues)
		b = wire.End(wire.AppendString(b, valueString, e.Key+"="+e.Value), text)
	}
	b = wire.EndField(wire.End(b, list), entry, value)
	if d.Override != nil {
		b = appendField(b, "limit", overrideText(d.Override))
	}
	if d.HitsGiven {
		b = appendField(b, "hitsAddend", float64(d.Hits))
	}
	return wire.End(wire.End(b, fields), item)
}

// overrideText writes an override in protobuf's text form, which leaves out zeros.
func overrideText(o *descriptors.Override) string {
	var b []byte
	if o.Count != 0 {
		b = strconv.AppendUint(append(b, "requests_per_unit:"...), uint64(o.Count), 10)
	}
	if o.Unit.Duration() > 0 {
		b = append(append(spaced(b), "unit:"...), o.Unit.String()...)
	}
	switch o.Multiplier {
	case 1:
	case 0:
		b = append(spaced(b), "unit_multiplier:{}"...)
	default:
		b = strconv.AppendUint(append(spaced(b), "unit_multiplier:{value:"...), uint64(o.Multiplier), 10)
		b = append(b, '}')
	}
	return string(b)
}

func spaced(b []byte) []byte {
	if len(b) == 0 {
		return b
	}
	return append(b, ' ')
}

// appendPassed writes the metadata of the limits whose descriptors passed, merged in the order of the descriptors.
func appendPassed(b []byte, v *engine.Verdict) []byte {
	var terms []descriptors.Term
	for _, t := range v.Match.Terms {
		reports := t.Descriptor >= 0 && t.Descriptor < len(v.Statuses)
		if reports && !v.Statuses[t.Descriptor].Over && t.Effect != nil && len(t.Effect.Metadata) > 0 {
			terms = append(terms, t)
		}
	}
	if len(terms) == 0 {
		return b
	}
	slices.SortStableFunc(terms, func(x, y descriptors.Term) int { return cmp.Compare(x.Descriptor, y.Descriptor) })
	merged := map[string]any{}
	for _, t := range terms {
		merge(merged, t.Effect.Metadata)
	}
	return appendField(b, "metadata", merged)
}

// merge adds to dst what it lacks of src; where both have an object, the objects are merged. Objects of src are copied,
// because src belongs to the rule set that all requests share.
func merge(dst, src map[string]any) {
	for key, value := range src {
		object, isObject := value.(map[string]any)
		have, taken := dst[key]
		switch {
		case !taken && isObject:
			copied := make(map[string]any, len(object))
			merge(copied, object)
			dst[key] = copied
		case !taken:
			dst[key] = value
		case isObject:
			if inner, ok := have.(map[string]any); ok {
				merge(inner, object)
			}
		}
	}
}

// appendField writes one field of a Struct.
func appendField(b []byte, key string, v any) []byte {
	b, entry, value := wire.BeginField(b, key)
	b = appendAny(b, v)
	return wire.EndField(b, entry, value)
}

// appendAny writes the inside of a Value: nil, bool, float64, string, []any or map[string]any. Anything else becomes
// null.
func appendAny(b []byte, v any) []byte {
	switch v := v.(type) {
	case bool:
		return wire.AppendNumber(b, valueBool, protowire.EncodeBool(v))
	case float64:
		b = protowire.AppendTag(b, valueNumber, protowire.Fixed64Type)
		return protowire.AppendFixed64(b, math.Float64bits(v))
	case string:
		return wire.AppendString(b, valueString, v)
	case []any:
		return appendList(b, v)
	case map[string]any:
		return appendObject(b, v)
	}
	return wire.AppendNumber(b, valueNull, 0)
}

func appendList(b []byte, list []any) []byte {
	b, mark := wire.Begin(b, valueList)
	for _, v := range list {
		var item int
		b, item = wire.Begin(b, listValues)
		b = wire.End(appendAny(b, v), item)
	}
	return wire.End(b, mark)
}

// appendObject writes the fields in the order of their keys, so that equal answers are equal bytes.
func appendObject(b []byte, object map[string]any) []byte {
	b, mark := wire.Begin(b, valueStruct)
	for _, key := range slices.Sorted(maps.Keys(object)) {
		b = appendField(b, key, object[key])
	}
	return wire.End(b, mark)
}
