package fleet

import "testing"

func TestReasonsByText(t *testing.T) {
	for text, reason := range map[string]string{
		"LOADING Redis is loading the dataset in memory":                           ReasonLoading,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is 'no'": ReasonLoading,
		"MISCONF Redis is configured to save RDB snapshots script: 0123, on @u:1":  ReasonMisconf,
		"ERR max number of clients reached":                                        ReasonClients,
		"BUSY Redis is busy running a script.":                                     ReasonBusy,
		"MOVED 3999 127.0.0.1:6381":                                                ReasonCluster,
		"CLUSTERDOWN Hash slot not served":                                         ReasonCluster,
		"CROSSSLOT Keys in request don't hash to the same slot":                    ReasonSlot,
		"WRONGPASS invalid username-password pair or user is disabled.":            ReasonNoAuth,
		"ERR user_script:1: attempt to index a nil value script: 0123":             ReasonScript,
		"ERR attempt to compare nil with number script: 01, on @user_script:7.":    ReasonScript,
		"something new": ReasonError,
	} {
		if got := replyReason(text); got != reason {
			t.Errorf("%q is %q, want %q", text, got, reason)
		}
	}
}
