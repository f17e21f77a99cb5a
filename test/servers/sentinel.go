package servers

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Sentinels is one master with two replicas under the eyes of three sentinels, two of which are enough to depose it. A
// master is down after one second.
type Sentinels struct {
	Master  string   // the name that the sentinels know the master by
	Servers []*Redis // the first was the master at the start
	Watch   []*Redis // the sentinels; one that is started again remembers what it knew
}

// StartSentinels starts the six processes, stops them when the test ends, and waits until every sentinel knows every
// replica and every other sentinel. Settings are those of the servers; with --requirepass the replicas and the
// sentinels get the password, and with TLS the sentinels speak it, too.
func StartSentinels(t testing.TB, settings ...string) *Sentinels {
	t.Helper()
	return StartGuardedSentinels(t, "", settings...)
}

// StartGuardedSentinels is StartSentinels with a password that the sentinels ask of their own clients, "" for none.
func StartGuardedSentinels(t testing.TB, password string, settings ...string) *Sentinels {
	t.Helper()
	s := &Sentinels{Master: "limits"}
	settings = replicating(settings)
	master := StartRedis(t, settings...)
	host, port, _ := net.SplitHostPort(master.Addr)
	s.Servers = []*Redis{master}
	for range 2 {
		s.Servers = append(s.Servers, StartRedis(t, append(settings, "--replicaof", host+" "+port)...))
	}
	// A sentinel that finds a replica without its master asks again much later.
	Await(t, "the replicas of "+master.Addr, func() error { return linked(s.Servers[1:]) })
	for range 3 {
		s.Watch = append(s.Watch, s.startSentinel(t, password))
	}
	Await(t, "the sentinels to know each other", s.acquainted)
	return s
}

// replicating adds to the settings of servers what replicas need. The slice that comes back is full, so that it can be
// appended to more than once.
func replicating(settings []string) []string {
	all := append([]string{"--repl-diskless-sync-delay", "0"}, settings...)
	at := slices.Index(settings, "--requirepass")
	if at >= 0 {
		all = append(all, "--masterauth", settings[at+1])
	}
	return slices.Clip(all)
}

// linked reports whether those of the servers that are replicas have what their masters have.
func linked(servers []*Redis) error {
	for _, r := range servers {
		info, err := r.text("INFO", "replication")
		if err != nil {
			return err
		}
		if strings.Contains(info, "role:slave") && !strings.Contains(info, "master_link_status:up") {
			return fmt.Errorf("%s lacks a link to its master", r.Addr)
		}
	}
	return nil
}

func (s *Sentinels) startSentinel(t testing.TB, password string) *Redis {
	t.Helper()
	master := s.Servers[0]
	host, port, _ := net.SplitHostPort(master.Addr)
	lines := []string{
		"sentinel monitor " + s.Master + " " + host + " " + port + " 2",
		"sentinel down-after-milliseconds " + s.Master + " 1000",
		"sentinel failover-timeout " + s.Master + " 3000",
		"sentinel parallel-syncs " + s.Master + " 1",
	}
	if master.password() != "" {
		lines = append(lines, "sentinel auth-pass "+s.Master+" "+master.password())
	}
	file := filepath.Join(t.TempDir(), "sentinel.conf") // where it writes down what it learns, too
	err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
	if err != nil {
		t.Fatalf("write the configuration of a sentinel: %v", err)
	}
	settings := master.security()
	if password != "" {
		settings = append(settings, "--requirepass", password)
	}
	// A sentinel that was stopped for two seconds does nothing for a while after that. The default is half a minute.
	calm := []string{"SENTINEL", "DEBUG", "TILT-PERIOD", "1000"}
	return startRedis(t, FreeAddr, &Redis{first: []string{file, "--sentinel"}, settings: settings, begin: calm})
}

// acquainted reports whether every sentinel knows all replicas and all other sentinels.
func (s *Sentinels) acquainted() error {
	for _, w := range s.Watch {
		reply, err := w.tryDo("SENTINEL", "MASTER", s.Master)
		if err != nil {
			return err
		}
		state := fields(reply)
		want := map[string]string{"flags": "master", "num-slaves": "2", "num-other-sentinels": "2"}
		for name, value := range want {
			if state[name] != value {
				return fmt.Errorf("the sentinel on %s reports %s %q, want %q", w.Addr, name, state[name], value)
			}
		}
	}
	return nil
}

// fields makes a map of a reply that lists names and values in turn.
func fields(reply any) map[string]string {
	items, _ := reply.([]any)
	m := map[string]string{}
	for pair := range slices.Chunk(items, 2) {
		m[fmt.Sprint(pair[0])] = fmt.Sprint(pair[len(pair)-1])
	}
	return m
}

// Addrs are the addresses of the sentinels.
func (s *Sentinels) Addrs() []string { return addrs(s.Watch) }

func addrs(servers []*Redis) []string {
	var all []string
	for _, r := range servers {
		all = append(all, r.Addr)
	}
	return all
}

// MasterAddr is the master's address by the first sentinel that answers.
func (s *Sentinels) MasterAddr(t testing.TB) string {
	t.Helper()
	var addr string
	Await(t, "a sentinel's answer", func() (err error) {
		for _, w := range s.Watch {
			addr, err = s.masterOf(w)
			if err == nil {
				return nil
			}
		}
		return err
	})
	return addr
}

// masterOf is the master's address by one sentinel.
func (s *Sentinels) masterOf(w *Redis) (string, error) {
	reply, err := w.tryDo("SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.Master)
	if err != nil {
		return "", err
	}
	parts, ok := reply.([]any)
	if !ok || len(parts) != 2 {
		return "", fmt.Errorf("the sentinel on %s knows no master: %v", w.Addr, reply)
	}
	return net.JoinHostPort(fmt.Sprint(parts[0]), fmt.Sprint(parts[1])), nil
}

// Current is the process of the master that the sentinels name, which may be dead for a while.
func (s *Sentinels) Current(t testing.TB) *Redis {
	t.Helper()
	addr := s.MasterAddr(t)
	at := slices.Index(addrs(s.Servers), addr)
	if at < 0 {
		t.Fatalf("the sentinels name %s, which is none of %v", addr, addrs(s.Servers))
	}
	return s.Servers[at]
}

// Failover orders the sentinels to depose the living master, and does not wait for it.
func (s *Sentinels) Failover(t testing.TB) {
	t.Helper()
	s.Watch[0].Do(t, "SENTINEL", "FAILOVER", s.Master)
}

// AwaitFailover waits until all living sentinels name another master than the old one, and returns it.
func (s *Sentinels) AwaitFailover(t testing.TB, old *Redis) *Redis {
	t.Helper()
	Await(t, "the sentinels to depose "+old.Addr, func() error {
		for _, w := range s.Watch {
			if !w.lives() {
				continue
			}
			addr, err := s.masterOf(w)
			if err != nil {
				return err
			}
			if addr == old.Addr {
				return fmt.Errorf("the sentinel on %s still names it", w.Addr)
			}
		}
		return nil
	})
	return s.Current(t)
}

// AwaitReplica waits until the sentinels have made a replica of a former master that lives. Left alone they take ten to
// twenty seconds, so it makes them look and talk more often until then.
func (s *Sentinels) AwaitReplica(t testing.TB, old *Redis) {
	t.Helper()
	s.pace(t, "500", "250")
	defer s.pace(t, "10000", "2000") // as they come
	Await(t, old.Addr+" to be a replica", func() error {
		info, err := old.text("INFO", "replication")
		if err == nil && !strings.Contains(info, "master_link_status:up") {
			err = fmt.Errorf("it reports\n%s", info)
		}
		return err
	})
}

// pace sets how often living sentinels ask servers for their roles and send each other what they know, in milliseconds.
func (s *Sentinels) pace(t testing.TB, ask, tell string) {
	t.Helper()
	for _, w := range s.Watch {
		if w.lives() {
			w.Do(t, "SENTINEL", "DEBUG", "INFO-PERIOD", ask, "PUBLISH-PERIOD", tell)
		}
	}
}
