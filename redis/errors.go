package redis

// The reasons why a call brought no reply, or one that is an error. They are labels of metrics, so the list is short and never
// holds what a server wrote. "Nothing ran" means that the server did not execute the call; else that is not known.
const (
	ReasonDeadline = "deadline"  // the caller left no time for a call; nothing ran
	ReasonOverload = "overload"  // more requests wait than can be answered in time; nothing ran
	ReasonBreaker  = "breaker"   // the server failed a moment ago and is left alone; nothing ran
	ReasonTimeout  = "timeout"   // the reply did not come in time, or there was no connection to ask on
	ReasonDial     = "dial"      // the server cannot be reached; nothing ran
	ReasonClosed   = "closed"    // the connection ended before the reply
	ReasonShutdown = "shutdown"  // this client was closed; nothing ran
	ReasonLoading  = "loading"   // the server reads its data, or its replica has no master; nothing ran
	ReasonReadonly = "readonly"  // the server is a read-only replica; nothing ran
	ReasonClients  = "clients"   // the server takes no more connections; nothing ran
	ReasonOOM      = "oom"       // the server is out of memory and may not evict; nothing ran
	ReasonMisconf  = "misconf"   // the server refuses writes because it cannot save; nothing ran
	ReasonNoAuth   = "noauth"    // user or password is missing or wrong; nothing ran
	ReasonNoPerm   = "noperm"    // the user may not run the script, a command in it, or touch the key
	ReasonWrong    = "wrongtype" // a foreign value sits under the key; nothing was charged
	ReasonBusy     = "busy"      // the server is in a script that does not end; nothing ran
	ReasonCluster  = "cluster"   // the server is part of a cluster and does not hold the key; nothing ran
	ReasonSlot     = "crossslot" // the keys of one call lie in several slots of a cluster; nothing ran
	ReasonScript   = "script"    // the script failed: a defect of Spillway or a server that is too old
	ReasonReply    = "reply"     // the reply could not be read: not the script that was asked
	ReasonError    = "error"     // anything else
)

// Reason labels the error of a call; empty for nil.
func Reason(err error) string { panic("redis: soon") }

// IsReply reports whether the server replied with an error that begins so.
func IsReply(err error, prefix string) bool { panic("redis: soon") }

// MayHaveRun reports whether a call that ended with this error may have run on the server all the same: it was sent, and no reply came.
func MayHaveRun(err error) bool { panic("redis: soon") }
