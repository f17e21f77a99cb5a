package servers

import "testing"

func TestSentinelsReplaceADeadMaster(t *testing.T) {
	s := StartSentinels(t)
	old := s.Current(t)
	old.Do(t, "SET", "a", "1")
	old.Kill(t)
	fresh := s.AwaitFailover(t, old)
	if got := fresh.Do(t, "INCR", "a"); got != int64(2) {
		t.Fatalf("got %v", got)
	}
}

func TestClusterThin(t *testing.T) {
	c := StartCluster(t)
	masters := c.Masters(t)
	t.Log("up")
	c.MoveSlots(t, masters[0], masters[1], 1000)
	t.Log("moved")
	c.Settle(t)
	t.Log("settled")
	masters[0].Kill(t)
	t.Log(c.MasterOf(t, 3000).Addr)
	c.Settle(t)
}
