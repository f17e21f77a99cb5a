// Package must ends a test at a call that returns an error. It allocates: what a test measures does without it.
package must

import "testing"

// Do ends the test if err is not nil.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get takes the results of a call. The function that it returns has the value, or ends the test if err is not nil:
//
//	text := must.Get(os.ReadFile(name))(t)
func Get[V any](value V, err error) func(testing.TB) V {
	return func(t testing.TB) V {
		t.Helper()
		Do(t, err)
		return value
	}
}

// Value returns the value of a call outside of a test, and panics if err is not nil.
func Value[V any](value V, err error) V {
	if err != nil {
		panic(err)
	}
	return value
}
