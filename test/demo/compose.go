package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Compose is what the demo reads of a docker-compose.yaml: its services, in the order of the file. It understands the short
// forms alone; that the file is a valid one is for others to check.
type Compose struct {
	Folder   string // where the file is; mounts are relative to it
	Services []Service
}

// Service is one container.
type Service struct {
	Name        string `yaml:"-"`
	Image       string
	Build       map[string]string
	Command     []string
	Environment map[string]string
	Ports       []string // [address:]host:container
	Expose      []string
	Volumes     []string // source:target[:ro]
}

// Mount is a file or folder that a container sees under another path.
type Mount struct{ Source, Target string }

// Publish is a port of a container that is reached from outside.
type Publish struct {
	Address         string
	Host, Container int
}

// ReadCompose reads a file, with variables in the place of ${NAME:-default}.
func ReadCompose(file string, lookup func(string) (string, bool)) (*Compose, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	filled, err := interpolate(string(text), lookup)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var told struct{ Services yaml.Node }
	err = yaml.Unmarshal([]byte(filled), &told)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	c := &Compose{Folder: filepath.Dir(file)}
	for i := 0; i+1 < len(told.Services.Content); i += 2 {
		s := Service{Name: told.Services.Content[i].Value}
		err = told.Services.Content[i+1].Decode(&s)
		if err != nil {
			return nil, fmt.Errorf("%s: service %s: %w", file, s.Name, err)
		}
		c.Services = append(c.Services, s)
	}
	if len(c.Services) == 0 {
		return nil, fmt.Errorf("%s: no services", file)
	}
	return c, nil
}

var variable = regexp.MustCompile(`\$(\{([A-Z][A-Z0-9_]*):-([^}$]*)\})?`)

// interpolate knows ${NAME:-default}; every other dollar is an error rather than a surprise. An empty variable counts as not
// set.
func interpolate(text string, lookup func(string) (string, bool)) (string, error) {
	var bad error
	filled := variable.ReplaceAllStringFunc(text, func(found string) string {
		parts := variable.FindStringSubmatch(found)
		if parts[1] == "" {
			bad = fmt.Errorf("a dollar that begins no ${NAME:-default}")
			return found
		}
		if value, ok := lookup(parts[2]); ok && value != "" {
			return value
		}
		return parts[3]
	})
	return filled, bad
}

// Service is the one of that name, or nil.
func (c *Compose) Service(name string) *Service {
	for i := range c.Services {
		if c.Services[i].Name == name {
			return &c.Services[i]
		}
	}
	return nil
}

// Mounts are the service's, with sources as paths from here.
func (c *Compose) Mounts(s *Service) ([]Mount, error) {
	var all []Mount
	for _, volume := range s.Volumes {
		parts := strings.Split(volume, ":")
		if len(parts) < 2 || !strings.HasPrefix(parts[0], ".") || !filepath.IsAbs(parts[1]) {
			return nil, fmt.Errorf("service %s: volume %q is no ./source:/target", s.Name, volume)
		}
		all = append(all, Mount{Source: filepath.Join(c.Folder, parts[0]), Target: parts[1]})
	}
	return all, nil
}

// Published are the ports that are reached from outside.
func (s *Service) Published() ([]Publish, error) {
	var all []Publish
	for _, port := range s.Ports {
		parts := strings.Split(port, ":")
		if len(parts) != 3 {
			return nil, fmt.Errorf("service %s: port %q is no address:host:container", s.Name, port)
		}
		host, err := strconv.Atoi(parts[1])
		if err != nil {
			return nil, fmt.Errorf("service %s: port %q: %w", s.Name, port, err)
		}
		container, err := strconv.Atoi(parts[2])
		if err != nil {
			return nil, fmt.Errorf("service %s: port %q: %w", s.Name, port, err)
		}
		all = append(all, Publish{parts[0], host, container})
	}
	return all, nil
}

// Open are the container's ports that others may use: those published and those exposed, each once.
func (s *Service) Open() ([]int, error) {
	published, err := s.Published()
	if err != nil {
		return nil, err
	}
	var all []int
	seen := map[int]bool{}
	add := func(port int) {
		if !seen[port] {
			all, seen[port] = append(all, port), true
		}
	}
	for _, p := range published {
		add(p.Container)
	}
	for _, text := range s.Expose {
		port, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("service %s: exposed port %q: %w", s.Name, text, err)
		}
		add(port)
	}
	return all, nil
}
