package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// redisConn is a connection that asks Redis about itself.
type redisConn struct {
	net.Conn
	reader *bufio.Reader
}

func dialRedis(addr string) (*redisConn, error) {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return nil, err
	}
	return &redisConn{c, bufio.NewReader(c)}, nil
}

// do sends a command without blanks in its words and returns a simple, bulk or integer reply.
func (c *redisConn) do(command string) (string, error) {
	err := c.SetDeadline(time.Now().Add(10 * time.Second))
	if err != nil {
		return "", err
	}
	_, err = io.WriteString(c, command+"\r\n")
	if err != nil {
		return "", err
	}
	line, err := c.reader.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	switch {
	case strings.HasPrefix(line, "+"), strings.HasPrefix(line, ":"):
		return line[1:], nil
	case strings.HasPrefix(line, "$"):
		size, err := strconv.Atoi(line[1:])
		if err != nil || size < 0 {
			return "", fmt.Errorf("%s: reply %q", command, line)
		}
		bulk := make([]byte, size+2)
		_, err = io.ReadFull(c.reader, bulk)
		return string(bulk[:size]), err
	}
	return "", fmt.Errorf("%s: reply %q", command, line)
}

// redisCounts is what Redis has counted since its start. INFO does not count the command that asks for it, so between
// two of them there is one command and one read of the harness itself.
type redisCounts struct {
	Commands int64 // those inside scripts, too
	Reads    int64 // times that Redis read from a connection
	Scripts  commandCount
}

// commandCount is how often a command ran and how long that took.
type commandCount struct{ Calls, Micros int64 }

// counts asks Redis.
func (c *redisConn) counts() (redisCounts, error) {
	text, err := c.do("INFO all")
	if err != nil {
		return redisCounts{}, err
	}
	return parseInfo(text)
}

// scripts are the commands that run a script or a function.
var scripts = []string{"eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"}

// parseInfo reads the reply to INFO all.
func parseInfo(text string) (redisCounts, error) {
	lines := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		lines[name] = value
	}
	var c redisCounts
	var err error
	c.Commands, err = strconv.ParseInt(lines["total_commands_processed"], 10, 64)
	if err != nil {
		return c, fmt.Errorf("total_commands_processed of INFO: %w", err)
	}
	c.Reads, err = strconv.ParseInt(lines["total_reads_processed"], 10, 64)
	if err != nil {
		return c, fmt.Errorf("total_reads_processed of INFO: %w", err)
	}
	for _, name := range scripts {
		line, ran := lines["cmdstat_"+name]
		if !ran {
			continue
		}
		one, err := parseCommand(line)
		if err != nil {
			return c, fmt.Errorf("cmdstat_%s of INFO: %w", name, err)
		}
		c.Scripts.Calls += one.Calls
		c.Scripts.Micros += one.Micros
	}
	return c, nil
}

// parseCommand reads calls and usec of a line of commandstats.
func parseCommand(line string) (commandCount, error) {
	fields := map[string]string{}
	for field := range strings.SplitSeq(line, ",") {
		name, value, _ := strings.Cut(field, "=")
		fields[name] = value
	}
	calls, err := strconv.ParseInt(fields["calls"], 10, 64)
	if err != nil {
		return commandCount{}, err
	}
	micros, err := strconv.ParseInt(fields["usec"], 10, 64)
	return commandCount{calls, micros}, err
}
