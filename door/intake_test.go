package door

import (
	"sync"
	"testing"
)

func TestOneMessageIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		intake *Intake
		fill   func(s *Share) bool
		excess string
	}{
		"1 MiB":       {nil, func(s *Share) bool { return !s.Exceeds(1 << 20) }, ""},
		"a byte more": {nil, func(s *Share) bool { return !s.Exceeds(1<<20 + 1) }, ExcessBytes},
		"its own bound": {NewIntake(100, 0), func(s *Share) bool {
			return !s.Exceeds(101)
		}, ExcessBytes},
		"10,000 descriptors": {NewIntake(0, 1), func(s *Share) bool {
			return addDescriptors(s, MaxDescriptors)
		}, ""},
		"one more": {NewIntake(0, 1), func(s *Share) bool {
			return addDescriptors(s, MaxDescriptors+1)
		}, ExcessDescriptors},
		"alone above the memory for all": {NewIntake(0, 1), func(s *Share) bool { return s.Add(100 << 20) }, ""},
	} {
		s := Share{Intake: c.intake}
		if ok := c.fill(&s); ok != (c.excess == "") || s.Excess != c.excess {
			t.Errorf("%s: %v with excess %q, want %q", name, ok, s.Excess, c.excess)
		}
		s.End()
		if c.intake != nil && c.intake.used.Load() != 0 {
			t.Errorf("%s: %d bytes are still taken", name, c.intake.used.Load())
		}
	}
}

func addDescriptors(s *Share, n int) bool {
	for range n {
		if !s.AddDescriptor() {
			return false
		}
	}
	return true
}

func TestLargeMessagesShareTheMemory(t *testing.T) {
	intake := NewIntake(0, 1<<20)
	first, second, small := Share{Intake: intake}, Share{Intake: intake}, Share{Intake: intake}
	if !first.Add(900 << 10) {
		t.Fatal("the first message is refused")
	}
	if second.Add(200<<10) || second.Excess != ExcessMemory {
		t.Errorf("the second message is not refused: excess %q", second.Excess)
	}
	if !small.Add(chunk) || small.taken != 0 {
		t.Error("a small message is refused, or counted")
	}
	second.End()
	first.End()
	if !second.Add(200 << 10) {
		t.Error("a message is refused after the others have ended")
	}
	second.End()
	if used := intake.used.Load(); used != 0 {
		t.Errorf("%d bytes are taken after all have ended", used)
	}
}

func TestManyShareAnIntake(t *testing.T) {
	intake := NewIntake(0, 1<<20)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			s := Share{Intake: intake}
			for range 1000 {
				for s.Add(50<<10) && s.need < 1<<20 {
				}
				s.End()
			}
		})
	}
	all.Wait()
	if used := intake.used.Load(); used != 0 {
		t.Errorf("%d bytes are taken after all have ended", used)
	}
}
