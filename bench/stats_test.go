package main

import (
	"math"
	"testing"
)

func TestPercentile(t *testing.T) {
	hundred := make([]int64, 100)
	for i := range hundred {
		hundred[i] = int64(i + 1)
	}
	for _, step := range []struct {
		values []int64
		share  float64
		want   int64
	}{
		{nil, 0.5, 0},
		{[]int64{7}, 0.5, 7},
		{[]int64{7}, 0.99, 7},
		{[]int64{1, 2}, 0.5, 1},
		{[]int64{1, 2, 3}, 0.5, 2},
		{hundred, 0.5, 50},
		{hundred, 0.99, 99},
		{hundred, 0.991, 100},
		{hundred, 1, 100},
		{hundred, 0, 1},
	} {
		if got := percentile(step.values, step.share); got != step.want {
			t.Errorf("percentile %v of %d values: %d, want %d", step.share, len(step.values), got, step.want)
		}
	}
}

func TestMedian(t *testing.T) {
	nan := math.NaN()
	for _, step := range []struct {
		values []float64
		want   float64
	}{
		{nil, nan},
		{[]float64{nan}, nan},
		{[]float64{3}, 3},
		{[]float64{9, 1, 2}, 2},
		{[]float64{9, 1, 2, 4}, 3},
		{[]float64{9, nan, 1, 2}, 2},
	} {
		got := median(step.values)
		if got != step.want && !(math.IsNaN(got) && math.IsNaN(step.want)) {
			t.Errorf("median of %v: %v, want %v", step.values, got, step.want)
		}
	}
	values := []float64{3, 1, 2}
	median(values)
	if values[0] != 3 {
		t.Error("median changes the order of its values")
	}
}

func TestRatio(t *testing.T) {
	if got := ratio(3, 2); got != 1.5 {
		t.Errorf("3 to 2 is %v", got)
	}
	if got := ratio(3, 0); !math.IsNaN(got) {
		t.Errorf("a ratio to nothing is %v", got)
	}
}

func TestNumbers(t *testing.T) {
	for value, want := range map[float64]string{0: "0.00", 0.604: "0.60", 9.99: "9.99", 12.34: "12.3", 123.4: "123",
		999.6: "1000", 1000: "1,000", 1234567: "1,234,567"} {
		if got := number(value); got != want {
			t.Errorf("%v is written %q, want %q", value, got, want)
		}
	}
	for value, want := range map[float64]string{0.01534: "0.015", 1.004: "1.004", 0: "0.000"} {
		if got := fine(value); got != want {
			t.Errorf("%v is written %q, want %q", value, got, want)
		}
	}
	for _, write := range []func(float64) string{number, fine} {
		if got := write(math.NaN()); got != "–" {
			t.Errorf("what is not known is written %q", got)
		}
	}
}
