package engine

import (
	"reflect"
	"testing"
)

// fill gives every exported field some value.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.String:
		v.SetString("left over")
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i))
			}
		}
	}
}

// leftovers names the exported fields that hold something. A slice may keep its memory.
func leftovers(path string, v reflect.Value) []string {
	switch {
	case v.Kind() == reflect.Slice && v.Len() == 0, v.IsZero():
		return nil
	case v.Kind() != reflect.Struct:
		return []string{path}
	}
	var names []string
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() {
			names = append(names, leftovers(path+"."+f.Name, v.Field(i))...)
		}
	}
	return names
}

func TestAnEmptiedVerdictHoldsNothing(t *testing.T) {
	var v Verdict
	fill(reflect.ValueOf(&v).Elem())
	if len(leftovers("verdict", reflect.ValueOf(v))) < 20 {
		t.Fatal("the test fills next to nothing in")
	}
	v.Empty()
	if names := leftovers("verdict", reflect.ValueOf(v)); len(names) > 0 {
		t.Errorf("still there: %v", names)
	}
	if cap(v.Statuses) == 0 || cap(v.Decisions) == 0 || cap(v.Match.Charges) == 0 {
		t.Error("its memory is gone")
	}
}
