package redis_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// wantCount wants a request that adds to a key to be answered with a number.
func wantCount(t testing.TB, c *redis.Client, key string, want int64) {
	t.Helper()
	got, err := do(t, c, add(key))
	if err != nil || !slices.Equal(got, []int64{7, want}) {
		t.Errorf("the reply is %v, %v; want [7 %d]", got, err, want)
	}
}

func TestARequestGetsItsReply(t *testing.T) {
	c := open(t, at(redis.Single, servers.StartRedis(t).Addr))
	wantCount(t, c, "a", 1)
	wantCount(t, c, "a", 2)
}

func TestARequestIsUsedAgain(t *testing.T) {
	c := open(t, at(redis.Single, servers.StartRedis(t).Addr))
	p := add("a")
	for want := range int64(100) {
		got, err := do(t, c, p)
		if err != nil || !slices.Equal(got, []int64{7, want + 1}) {
			t.Fatalf("reply %d is %v, %v", want, got, err)
		}
	}
}

func TestRequestsOfOneCallRunInTheirOrder(t *testing.T) {
	c := open(t, at(redis.Single, servers.StartRedis(t).Addr))
	double := redis.NewScript(`return {0, redis.call('SET', KEYS[1], 2 * redis.call('GET', KEYS[1])) and 5}`, false)
	twice := &redis.Pending{Script: double, Keys: []string{"a"}, Replies: 1}
	first, last := add("a"), add("a")
	c.Server("a").Do(first, twice, last) // (0 + 1) * 2 + 1
	await(t, first, twice, last)
	if last.Err != nil || last.Reply[1] != 3 {
		t.Errorf("the last of three replies is %v, %v; want 3", last.Reply, last.Err)
	}
}

func TestAScriptThatIsAloneHasARunForEachRequest(t *testing.T) {
	c := open(t, at(redis.Single, servers.StartRedis(t).Addr))
	alone := redis.NewScript("return {tonumber(ARGV[1]), 2, #ARGV}", true)
	one := &redis.Pending{Script: alone, Keys: []string{"a"}, Arguments: []string{"x"}, Replies: 2}
	two := &redis.Pending{Script: alone, Keys: []string{"a"}, Arguments: []string{"x"}, Replies: 2}
	c.Server("a").Do(one, two)
	await(t, one, two)
	for _, p := range []*redis.Pending{one, two} {
		if p.Err != nil || !slices.Equal(p.Reply, []int64{0, 2, 2}) {
			t.Errorf("the reply is %v, %v", p.Reply, p.Err)
		}
	}
}

func TestAReplyThatIsNotAsAskedFor(t *testing.T) {
	c := open(t, at(redis.Single, servers.StartRedis(t).Addr))
	for _, reply := range []string{"{}", "{1}", "{1, 2, 3}", "{1, 'a'}", "'a'", "1", "false", "{1, {2}}"} {
		p := &redis.Pending{Script: redis.NewScript("return "+reply, false), Keys: []string{"a"}, Replies: 1}
		_, err := do(t, c, p)
		if redis.Reason(err) != redis.ReasonReply || !redis.MayHaveRun(err) {
			t.Errorf("for the reply %s the error is %v", reply, err)
		}
	}
	wantCount(t, c, "a", 1) // the connection is well
}

func TestAScriptIsLoadedAgain(t *testing.T) {
	server := servers.StartRedis(t)
	var reasons atomic.Pointer[string]
	cfg := at(redis.Single, server.Addr)
	cfg.OnCall = func(_ string, _, _ int, _ time.Duration, reason string) { reasons.Store(&reason) }
	c := open(t, cfg)
	wantCount(t, c, "a", 1)
	server.Do(t, "SCRIPT", "FLUSH")
	wantCount(t, c, "a", 2)
	if *reasons.Load() != "" {
		t.Errorf("the batch counts as failed: %s", *reasons.Load())
	}
}

func TestColdCommands(t *testing.T) {
	c := open(t, at(redis.Single, servers.StartRedis(t).Addr))
	for _, step := range []struct {
		args []any
		want any
	}{
		{[]any{"GET", "k"}, nil},
		{[]any{"SET", "k", []byte("text")}, "OK"},
		{[]any{"GET", "k"}, "text"},
		{[]any{"HSET", "h", "field", 5}, int64(1)},
		{[]any{"HGETALL", "h"}, []any{"field", "5"}},
		{[]any{"MGET", "k", "none"}, []any{"text", nil}},
	} {
		for name, send := range map[string]func(context.Context, string, ...any) (any, error){"Run": c.Run,
			"Ask": c.Ask} {
			if step.args[0] == "HSET" && name == "Ask" {
				continue
			}
			got, err := send(t.Context(), "k", step.args...)
			if err != nil || fmt.Sprint(got) != fmt.Sprint(step.want) {
				t.Errorf("%s %v: %v, %v; want %v", name, step.args, got, err, step.want)
			}
		}
	}
	_, err := c.Run(t.Context(), "k", "HGETALL", "k")
	if redis.Reason(err) != redis.ReasonWrong || !redis.IsReply(err, "WRONGTYPE") {
		t.Errorf("a command about a value of another type: %v", err)
	}
}

func TestAnOldContextSendsNothing(t *testing.T) {
	server := servers.StartRedis(t)
	c := open(t, at(redis.Single, server.Addr))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Run(ctx, "k", "INCR", "k")
	if err == nil || redis.MayHaveRun(err) || server.Do(t, "GET", "k") != nil {
		t.Errorf("a command of a caller that has gone: %v", err)
	}
}

func TestTLS(t *testing.T) {
	cert, key := servers.Certificate(t)
	server := servers.StartRedis(t, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert,
		"--tls-auth-clients", "no")
	pem := must.Get(os.ReadFile(cert))(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	cfg := at(redis.Single, server.Addr)
	cfg.TLS = func() *tls.Config { return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12} }
	c := open(t, cfg)
	wantCount(t, c, "a", 1)
	wantCount(t, c, "a", 2)
	cfg.TLS = func() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12} }
	_, err := do(t, open(t, cfg), add("a"))
	if redis.Reason(err) != redis.ReasonDial || redis.MayHaveRun(err) {
		t.Errorf("a server whose certificate is not trusted: %v", err)
	}
}

func TestAUnixSocket(t *testing.T) {
	server := servers.StartRedis(t)
	cfg := at(redis.Single, server.Socket)
	cfg.Network = "unix"
	wantCount(t, open(t, cfg), "a", 1)
}

func TestADatabaseOfItsOwn(t *testing.T) {
	server := servers.StartRedis(t)
	cfg := at(redis.Single, server.Addr)
	cfg.DB = 3
	wantCount(t, open(t, cfg), "a", 1)
	if server.Do(t, "GET", "a") != nil {
		t.Error("the counter is in database 0")
	}
}

func TestAnACLUser(t *testing.T) {
	server := servers.StartRedis(t)
	server.Do(t, "ACL", "SETUSER", "limits", "on", ">secret", "~a*", "+@all", "-get")
	cfg := at(redis.Single, server.Addr)
	cfg.Username, cfg.Password = "limits", "secret"
	c := open(t, cfg)
	wantCount(t, c, "a", 1)
	_, err := do(t, c, add("b"))
	if redis.Reason(err) != redis.ReasonNoPerm {
		t.Errorf("a key that the user may not touch: %v", err)
	}
	allowed, forbidden, last := add("a"), add("b"), add("a")
	c.Server("a").Do(allowed, forbidden, last)
	await(t, allowed, forbidden, last)
	if allowed.Err != nil || redis.Reason(forbidden.Err) != redis.ReasonNoPerm || last.Err != nil ||
		last.Reply[1] != 3 {
		t.Errorf("beside a key that the user may not touch: %v, %v, %v %v", allowed.Err, forbidden.Err, last.Err,
			last.Reply)
	}
	get := redis.NewScript("return redis.call('GET', KEYS[1])", false)
	_, err = do(t, c, &redis.Pending{Script: get, Keys: []string{"a"}, Replies: 1})
	if redis.Reason(err) != redis.ReasonNoPerm || !redis.MayHaveRun(err) {
		t.Errorf("a command in a script that the user may not run: %v", err)
	}
	if state := c.Servers()[0].Breaker().State().String(); state != "closed" {
		t.Errorf("the breaker is %s", state)
	}
	cfg.Password = "wrong"
	_, err = do(t, open(t, cfg), add("a"))
	if redis.Reason(err) != redis.ReasonNoAuth || redis.MayHaveRun(err) {
		t.Errorf("a wrong password: %v", err)
	}
}

// TestAPasswordThatChanges is asked for at each connect.
func TestAPasswordThatChanges(t *testing.T) {
	server := servers.StartRedis(t)
	server.Do(t, "ACL", "SETUSER", "limits", "on", ">first", "~*", "+@all")
	var password atomic.Pointer[string]
	password.Store(new("first"))
	cfg := at(redis.Single, server.Addr)
	cfg.Credentials = func() (string, string) { return "limits", *password.Load() }
	c := open(t, cfg)
	wantCount(t, c, "a", 1)
	server.Do(t, "ACL", "SETUSER", "limits", "<first", ">second")
	password.Store(new("second"))
	server.Do(t, "CLIENT", "KILL", "USER", "limits")
	servers.Await(t, "an answer with the second password", func() error {
		_, err := do(t, c, add("a"))
		return err
	})
}

func TestAClientThatIsClosed(t *testing.T) {
	c := redis.New(at(redis.Single, servers.StartRedis(t).Addr))
	c.Ready(t.Context())
	c.Close()
	_, err := do(t, c, add("a"))
	if redis.Reason(err) != redis.ReasonShutdown || redis.MayHaveRun(err) {
		t.Errorf("a request: %v", err)
	}
	_, err = c.Run(t.Context(), "a", "PING")
	if redis.Reason(err) != redis.ReasonShutdown || redis.MayHaveRun(err) {
		t.Errorf("a cold command: %v", err)
	}
	if s := statsOf(c); s.Connections != 0 || s.Opened == 0 {
		t.Errorf("stats: %+v", s)
	}
}
