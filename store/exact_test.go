package store

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// contenderVar names the environment variable with the address of the server that a contender spends on.
const contenderVar = "SPILLWAY_TEST_CONTENDER"

const (
	contenders = 4  // processes
	goroutines = 64 // in each
	exactCount = 50 // of the limit they fight for
)

// contend is a process of its own that spends on the counters named on its input and answers how many it got.
func contend() {
	r := NewRedis(RedisConfig{Servers: fleet.Servers{Addresses: []string{os.Getenv(contenderVar)}}, Budget: patient})
	defer r.Close()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		name, number, _ := strings.Cut(lines.Text(), " ")
		a, _ := strconv.Atoi(number)
		fmt.Println(grab(r, name, limit.Algorithm(a)))
	}
}

// grab lets every goroutine spend once, and counts what was admitted. A charge that stayed undecided makes it -1.
func grab(s counter, key string, a limit.Algorithm) int64 {
	l := limit.Limit{Algorithm: a, Count: exactCount, Window: year, Burst: exactCount}
	var admitted, lost atomic.Int64
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			switch spend(s, limit.Charge{Key: key, Limit: l, Cost: 1})[0].Outcome {
			case limit.Allowed:
				admitted.Add(1)
			case limit.Undecided:
				lost.Add(1)
			}
		})
	}
	all.Wait()
	if lost.Load() > 0 {
		return -1
	}
	return admitted.Load()
}

// contender is the test's end of such a process.
type contender struct {
	in  *os.File
	out *bufio.Scanner
}

func startContender(t *testing.T, address string) contender {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), contenderVar+"="+address)
	inRead, inWrite, err := os.Pipe()
	if err != nil {
		t.Fatalf("pipe to a contender: %v", err)
	}
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		t.Fatalf("pipe from a contender: %v", err)
	}
	cmd.Stdin, cmd.Stdout = inRead, outWrite
	servers.Start(t, cmd)
	inRead.Close()
	outWrite.Close()
	t.Cleanup(func() {
		inWrite.Close()
		outRead.Close()
	})
	return contender{in: inWrite, out: bufio.NewScanner(outRead)}
}

// race starts one round in every process and adds up what they got.
func race(t *testing.T, all []contender, key string, a limit.Algorithm) int64 {
	t.Helper()
	for _, c := range all {
		fmt.Fprintf(c.in, "%s %d\n", key, a)
	}
	var admitted int64
	for _, c := range all {
		if !c.out.Scan() {
			t.Fatalf("a contender ended: %v", c.out.Err())
		}
		n, err := strconv.ParseInt(c.out.Text(), 10, 64)
		if err != nil || n < 0 {
			t.Fatalf("a contender answered %q", c.out.Text())
		}
		admitted += n
	}
	return admitted
}

func TestFourProcessesAdmitExactlyTheLimit(t *testing.T) {
	t.Parallel() // beside tests that mostly wait
	server := servers.StartRedis(t)
	var all []contender
	for range contenders {
		all = append(all, startContender(t, server.Addr))
	}
	eachAlgorithm(t, exactCount, year, func(t *testing.T, l limit.Limit) {
		for round := range exactRounds {
			key := fmt.Sprintf("rl1:{exact}:%v:%d", l.Algorithm, round)
			if got := race(t, all, key, l.Algorithm); got != exactCount {
				t.Fatalf("round %d admitted %d, want %d", round, got, exactCount)
			}
		}
	})
}

func TestGoroutinesAdmitExactlyTheLimitInMemory(t *testing.T) {
	s := NewMemory(MemoryConfig{})
	eachAlgorithm(t, exactCount, year, func(t *testing.T, l limit.Limit) {
		for round := range exactRounds {
			key := fmt.Sprintf("rl1:{exact}:%v:%d", l.Algorithm, round)
			if got := grab(s, key, l.Algorithm); got != exactCount {
				t.Fatalf("round %d admitted %d, want %d", round, got, exactCount)
			}
		}
	})
}

// Random requests over a few counters, so that they meet: rules of every algorithm, all or nothing.
const (
	randomCounters = 40
	randomWorkers  = 16
)

// randomRequest picks one to five different counters and one cost each.
func randomRequest(rng *rand.Rand) []limit.Charge {
	var charges []limit.Charge
	for _, i := range rng.Perm(randomCounters)[:1+rng.IntN(5)] {
		count := int64(randomRequests/25 + 100*i)
		charges = append(charges, limit.Charge{
			Key:   fmt.Sprintf("rl1:{all}:%d", i),
			Limit: limit.Limit{Algorithm: limit.Algorithm(i%4 + 1), Count: count, Window: year, Burst: count},
			Cost:  1 + rng.Int64N(3),
		})
	}
	return charges
}

// admittedAll reports whether a request was admitted, and whether what was charged fits to that.
func admittedAll(charges []limit.Charge, decisions []limit.Decision) (admitted, whole bool) {
	admitted = true
	for _, d := range decisions {
		admitted = admitted && d.Outcome == limit.Allowed
	}
	for i, d := range decisions {
		if admitted && d.Charged != charges[i].Cost || !admitted && d.Charged != 0 || d.Outcome == limit.Undecided {
			return admitted, false
		}
	}
	return admitted, true
}

func TestNoRequestIsChargedInPart(t *testing.T) {
	t.Parallel() // beside tests that mostly wait
	eachStore(t, func(t *testing.T, s counter) {
		var charged [randomCounters]atomic.Int64
		var partial, refused atomic.Int64
		var all sync.WaitGroup
		for worker := range randomWorkers {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(1, uint64(worker)))
				for range randomRequests / randomWorkers {
					charges := randomRequest(rng)
					admitted, whole := admittedAll(charges, spendCounting(s, charges, &charged))
					if !whole {
						partial.Add(1)
					}
					if !admitted {
						refused.Add(1)
					}
				}
			})
		}
		all.Wait()
		if partial.Load() != 0 {
			t.Fatalf("%d requests were charged in part", partial.Load())
		}
		if refused.Load() == 0 || refused.Load() == randomRequests {
			t.Fatalf("%d requests were refused: the test does not exercise both ways", refused.Load())
		}
		wantCounters(t, s, &charged)
	})
}

// spendCounting decides a request and adds what an admitted one costs to the books of the test.
func spendCounting(s counter, charges []limit.Charge, books *[randomCounters]atomic.Int64) []limit.Decision {
	decisions := spend(s, charges...)
	if admitted, _ := admittedAll(charges, decisions); !admitted {
		return decisions
	}
	for _, c := range charges {
		i, _ := strconv.Atoi(c.Key[strings.LastIndexByte(c.Key, ':')+1:])
		books[i].Add(c.Cost)
	}
	return decisions
}

// wantCounters compares every counter of the store with the books.
func wantCounters(t *testing.T, s counter, books *[randomCounters]atomic.Int64) {
	t.Helper()
	var off bytes.Buffer
	for i := range books {
		count := int64(randomRequests/25 + 100*i)
		c := limit.Charge{
			Key:   fmt.Sprintf("rl1:{all}:%d", i),
			Limit: limit.Limit{Algorithm: limit.Algorithm(i%4 + 1), Count: count, Window: year, Burst: count},
		}
		if left := usage(s, c).Remaining; left != count-books[i].Load() {
			fmt.Fprintf(&off, "counter %d (%v): %d left of %d after charges of %d\n", i, c.Limit.Algorithm, left, count, books[i].Load())
		}
	}
	if off.Len() > 0 {
		t.Fatal(off.String())
	}
	if err := s.Reset(context.Background(), []string{"rl1:{all}:0"}); err != nil {
		t.Fatalf("reset: %v", err)
	}
}
