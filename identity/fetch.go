package identity

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// fetchTimeout is how long one fetch of a key set may take, its body included.
const fetchTimeout = 3 * time.Second

// fetcher gets the documents of key sets.
type fetcher struct {
	client       *http.Client
	loopbackHTTP bool
}

func newFetcher(cfg KeySetsConfig) *fetcher {
	transport := cfg.Transport
	if transport == nil {
		dialer := &net.Dialer{Timeout: fetchTimeout, Control: refuseLinkLocal}
		transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext,
			TLSClientConfig:   &tls.Config{MinVersion: tls.VersionTLS12},
			DisableKeepAlives: true, // minutes lie between two fetches
		}
	}
	return &fetcher{
		client:       &http.Client{Transport: transport, CheckRedirect: stay},
		loopbackHTTP: cfg.LoopbackHTTP,
	}
}

// stay refuses redirects: an attacker who could place one would choose the keys.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// refuseLinkLocal keeps fetches away from addresses where clouds hand out credentials.
func refuseLinkLocal(_, address string, _ syscall.RawConn) error {
	pair, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("dial %s: %w", address, err)
	}
	if pair.Addr().Unmap().IsLinkLocalUnicast() {
		return fmt.Errorf("dial %s: link-local addresses hold no key sets", address)
	}
	return nil
}

// isFile reports whether a key set is in a file.
func isFile(source string) bool { return filepath.IsAbs(source) }

// get reads the document of a key set, and how long it may be kept without asking again.
func (f *fetcher) get(ctx context.Context, source string) ([]byte, time.Duration, error) {
	if isFile(source) {
		document, err := readFile(source)
		return document, filePoll, err
	}
	at, err := f.checked(source)
	if err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, 0, errors.New("fetch the key set: no URL")
	}
	request.Header.Set("Accept", "application/jwk-set+json, application/json")
	response, err := f.client.Do(request)
	if err != nil {
		return nil, 0, fmt.Errorf("fetch the key set: %w", withoutURL(err))
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, 0, fmt.Errorf("fetch the key set: status %d", response.StatusCode)
	}
	document, err := readAll(response.Body)
	return document, interval(response.Header.Get("Cache-Control")), err
}

// errLinkLocal keeps fetches away from addresses where clouds hand out credentials.
var errLinkLocal = errors.New("fetch the key set: link-local addresses hold no key sets")

// checked is the URL of a key set, if it may be asked.
func (f *fetcher) checked(source string) (*url.URL, error) {
	at, err := url.Parse(source)
	if err != nil || at.Host == "" {
		return nil, errors.New("fetch the key set: neither an https URL nor an absolute path")
	}
	host, err := netip.ParseAddr(at.Hostname())
	if err == nil && host.Unmap().IsLinkLocalUnicast() { // a proxy would be the only one that is dialed
		return nil, errLinkLocal
	}
	if at.Scheme == "https" {
		return at, nil
	}
	if at.Scheme == "http" && f.loopbackHTTP && err == nil && host.IsLoopback() {
		return at, nil
	}
	return nil, fmt.Errorf("fetch the key set: %q is not https", at.Scheme)
}

// withoutURL drops the URL from an error of net/http: it may hold a password.
func withoutURL(err error) error {
	if of, ok := errors.AsType[*url.Error](err); ok {
		return of.Err
	}
	return err
}

// readFile reads a key set from a file. Anything that is not a plain file could keep the reader waiting for ever.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open the key set: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("open the key set: %s must be a plain file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the key set: %w", err)
	}
	defer file.Close()
	return readAll(file)
}

// readAll reads a document up to its bound.
func readAll(r io.Reader) ([]byte, error) {
	document, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err != nil {
		return nil, fmt.Errorf("read the key set: %w", err)
	}
	if len(document) > maxDocument {
		return nil, fmt.Errorf("read the key set: more than %d bytes", maxDocument)
	}
	return document, nil
}

// interval is how long a document may be kept by its Cache-Control, within bounds.
func interval(control string) time.Duration {
	for directive := range strings.SplitSeq(control, ",") {
		name, value, _ := strings.Cut(strings.ToLower(strings.TrimSpace(directive)), "=")
		switch name {
		case "no-store", "no-cache":
			return minRefresh
		case "max-age":
			seconds, err := strconv.ParseUint(strings.Trim(value, `"`), 10, 31)
			if err == nil {
				return min(max(time.Duration(seconds)*time.Second, minRefresh), maxRefresh)
			}
		}
	}
	return usualRefresh
}
