package settings

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestTLSSettingsThatDoNothingEndTheStart: an operator who set them would take a plain connection for a secured one.
func TestTLSSettingsThatDoNothingEndTheStart(t *testing.T) {
	const (
		noTLS   = "set GRPC_SERVER_USE_TLS=true as well, or remove it: the gRPC port has no TLS"
		noRedis = "write rediss:// in REDIS_URL or set REDIS_TLS=true as well, or remove it: no Redis is reached " +
			"over TLS"
	)
	for environ, want := range map[string][]string{
		"GRPC_CLIENT_TLS_CACERT=ca": {"GRPC_CLIENT_TLS_CACERT: " + noTLS},
		"GRPC_SERVER_TLS_CA_CERT=ca GRPC_SERVER_TLS_CERT=c GRPC_SERVER_TLS_KEY=k": {
			"GRPC_SERVER_TLS_CERT: " + noTLS, "GRPC_SERVER_TLS_KEY: " + noTLS, "GRPC_SERVER_TLS_CA_CERT: " + noTLS},
		"GRPC_CLIENT_TLS_SAN=envoy": {"GRPC_CLIENT_TLS_SAN: " + noTLS},
		"GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=c GRPC_SERVER_TLS_KEY=k GRPC_CLIENT_TLS_CACERT=a " +
			"GRPC_SERVER_TLS_CA_CERT=b": {
			"GRPC_CLIENT_TLS_CACERT and GRPC_SERVER_TLS_CA_CERT name different files: remove one of them"},
		"REDIS_URL=redis://a REDIS_TLS_CACERT=ca": {"REDIS_TLS_CACERT: " + noRedis},
		"REDIS_URL=a:1 REDIS_TLS_CLIENT_CERT=c REDIS_TLS_CLIENT_KEY=k": {"REDIS_TLS_CLIENT_CERT: " + noRedis,
			"REDIS_TLS_CLIENT_KEY: " + noRedis},
		"REDIS_URL=a:1 REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true": {"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION: " +
			noRedis},
		"REDIS_TLS_CACERT=ca": {"REDIS_TLS_CACERT: " + noRedis},
		"REDIS_TLS=true": {"REDIS_TLS: set REDIS_URL as well, or remove it: there " +
			"is no Redis"},
		"REDIS_URL=a:1 REDIS_PERSECOND_TLS=true":                                                nil,
		"REDIS_URL=rediss://a REDIS_TLS_CACERT=ca":                                              nil,
		"REDIS_URL=a:1 REDIS_TLS=true REDIS_TLS_CACERT=ca":                                      nil,
		"REDIS_URL=a:1 REDIS_PERSECOND=true REDIS_PERSECOND_URL=rediss://b REDIS_TLS_CACERT=ca": nil,
	} {
		_, err := FromEnvironment(strings.Fields(environ), "sidecar")
		var wrong *ConfigError
		errors.As(err, &wrong)
		var got []string
		if wrong != nil {
			got = wrong.Problems
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%q, want\n%q", environ, got, want)
		}
	}
}
