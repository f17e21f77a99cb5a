# Spillway: make help lists what there is. make run needs Go alone; make test installs what it needs.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.NOTPARALLEL:

GO           ?= go
BIN          := bin
TOOLS        := .tools
# Envoy's program: the caller's own, else the one that `make tools` fetches.
ENVOY_BIN    ?= $(CURDIR)/$(TOOLS)/envoy/envoy
FUZZ_TIME    ?= 60s
MICRO        ?= .
MICRO_TIME   ?= 1s
# The reference server that `make bench` compares with: what its Go module's `latest` is.
REFERENCE    := v1.4.1-0.20260122083618-3fb702589d36
REFERENCE_BIN = $(TOOLS)/ratelimit/$(REFERENCE)/service_cmd
# The Envoy Gateway that `make test-gateway` runs.
GATEWAY      := v1.9.1
GATEWAY_BIN   = $(CURDIR)/$(TOOLS)/envoy-gateway/$(GATEWAY)/envoy-gateway
# What `make test-mesh` runs: the API server of Kubernetes, Istio's control plane, and the kinds that manifests are of.
API_SERVER   = $(TOOLS)/kube-apiserver/kube-apiserver
ISTIOD       = $(TOOLS)/istiod/istiod
CRDS         = $(TOOLS)/crds/istio.yaml
# What editors check rule files with: `make test-outer` lets it check the examples.
LANGUAGE_SERVER = $(TOOLS)/yaml-language-server/node_modules/yaml-language-server/bin/yaml-language-server
# What checks the admin API against its OpenAPI document: `make test-outer` lets it.
SCHEMATHESIS = $(TOOLS)/schemathesis/bin/st
export ENVOY_BIN

# Helm, built from its Go module: `make test-outer` renders the chart with it.
HELM         = $(TOOLS)/helm/helm

# What no race detector and no C library is needed for is built without cgo, so that `make run` needs Go alone.
export CGO_ENABLED ?= 0
export GO

# The commit goes into the program where git can tell it: not in a tarball, nor in another user's checkout.
VCS   = $(shell git rev-parse HEAD >/dev/null 2>&1 && echo auto || echo false)

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the sidecar and the command spillway into bin/
	@$(GO) build -buildvcs=$(VCS) -o $(BIN)/ ./cmd/...

.PHONY: run
run: ## start the sidecar on the memory store with the rules of examples/rules (needs Go alone)
	@RULES=$${RULES:-examples/rules} exec tools/run

.PHONY: demo
demo: demo-tools build ## Envoy, two sidecars, Redis and an upstream from examples/envoy, without Docker; prints what to try
	@SIDECAR_BIN=$(BIN)/sidecar exec examples/envoy/start.sh

.PHONY: control
control: build ## PostgreSQL, Redis, the control plane and two sidecars on this machine, with the example published; says what to try
	@tools/servers
	@BIN=$(BIN) exec examples/control/start.sh

.PHONY: test
test: ## before each commit: checks and all packages once, with a real Redis, PostgreSQL and Envoy (5 minutes; 10 the first time)
	@tools/test

.PHONY: test-outer
test-outer: ## what is around the product: races, pages, API, chart, manifests, image, release; each part when its inputs changed (10 minutes)
	@tools/test-outer

.PHONY: test-all
test-all: test test-outer ## both, and what takes long or judges time: full lengths, faults, load, exactness, soak, fuzz, gateway (hours)
	@tools/test-all

.PHONY: test-control
test-control: tools ## the control plane at full length: plans on ten million events, backups, restores, copy rates; also with the race detector
	@$(GO) test -tags full -count=1 -p 1 -v -timeout 60m ./control/... ./test/control
	@CGO_ENABLED=1 $(GO) test -tags full -count=1 -race -timeout 60m ./control/... ./test/control

.PHONY: test-stores
test-stores: ## the store and the whole sidecar over each supported version of Redis and Valkey, and over one that is too old (2 minutes)
	@tools/test-stores

.PHONY: test-gateway
test-gateway: tools $(GATEWAY_BIN) ## the sidecar as the rate limit service of a real Envoy Gateway, without Kubernetes (needs root; the first build takes minutes)
	@ENVOY_GATEWAY_BIN=$(GATEWAY_BIN) $(GO) test -count=1 -v -timeout 20m ./test/gateway

$(GATEWAY_BIN):
	@echo "building Envoy Gateway $(GATEWAY)"
	@GOBIN=$(@D) $(GO) install github.com/envoyproxy/gateway/cmd/envoy-gateway@$(GATEWAY)

.PHONY: test-mesh
test-mesh: tools $(API_SERVER) $(ISTIOD) $(CRDS) ## examples and chart in a real API server of Kubernetes, and a real istiod with its Envoys (needs root; the first build takes a quarter of an hour)
	@command -v etcd >/dev/null || ./tools/packages etcd-server
	@command -v iptables >/dev/null || ./tools/packages iptables
	@$(GO) test -count=1 -v -timeout 20m ./test/mesh

# The version is that of the module, which a build from it does not know.
$(API_SERVER): tools/kube-apiserver/go.mod tools/kube-apiserver/go.sum
	@echo "building kube-apiserver"
	@cd tools/kube-apiserver && $(GO) build -buildvcs=false -o $(CURDIR)/$(API_SERVER) -ldflags "-s -w \
	  -X k8s.io/component-base/version.gitVersion=$$($(GO) list -m -f '{{.Version}}' k8s.io/kubernetes)" \
	  k8s.io/kubernetes/cmd/kube-apiserver
	@touch $@

$(ISTIOD): tools/istiod/go.mod tools/istiod/go.sum
	@echo "building istiod"
	@cd tools/istiod && $(GO) build -buildvcs=false -ldflags "-s -w" -o $(CURDIR)/$(ISTIOD) istio.io/istio/pilot/cmd/pilot-discovery
	@touch $@

$(CRDS): tools/crds tools/istiod/go.mod test/chart/go.mod Makefile
	@tools/crds $(@D) $(GATEWAY)

.PHONY: capacity
capacity: tools ## measure what docs/explain/capacity.md calculates with: a hundredth of ten million users (takes minutes)
	@$(GO) test -tags full -timeout 60m -run '^$$' -bench '^BenchmarkCapacity$$' -benchtime 1x -v ./control/publish
	@$(GO) test -tags full -timeout 60m -run '^TestChangesReachEverySidecar$$' -count=1 -v ./test/control

.PHONY: screenshots
screenshots: tools ## take the pictures of the live page in docs/ anew (takes two minutes)
	@$(GO) test -count=1 -timeout 10m -run '^TestScreenshots$$' ./test/browser -screenshots docs/pictures

# From an empty cache this takes two to three minutes of two cores.
$(HELM): tools/helm/go.mod tools/helm/go.sum
	@echo "building helm"
	@cd tools/helm && $(GO) build -buildvcs=false -ldflags "-s -w" -o $(CURDIR)/$(HELM) helm.sh/helm/v3/cmd/helm
	@touch $@

.PHONY: release
release: ## VERSION=v0.2.0: programs for four platforms, an SBOM, an OCI image for two, the chart and checksums, in bin/release/VERSION
	@cd tools/release && $(GO) run . -version '$(VERSION)' -source $(CURDIR) -out '$(CURDIR)/bin/release/$(VERSION)' $(RELEASE_FLAGS)

$(LANGUAGE_SERVER): tools/language-server/package-lock.json
	@./tools/yaml-language-server $(TOOLS)/yaml-language-server
	@touch $@

$(SCHEMATHESIS): tools/schemathesis.txt
	@./tools/schemathesis $(TOOLS)/schemathesis
	@touch $@

.PHONY: simulate
simulate: ## replay a seed of the simulation with SEED=n, the first n twice with TWICE=n, look for new ones that fail for MINUTES=m, or show 100 sidecars on one limit with SCALE=leases or none (docs/simulation.md; 4 minutes more the first time)
	@SEED=$(SEED) TWICE=$(TWICE) MINUTES=$(MINUTES) SCALE=$(SCALE) exec tools/simulate

.PHONY: simulate-mutants
simulate-mutants: ## put each bug of test/simulation/mutants into a copy of the code: the simulation has to find it (15 minutes; MUTANTS=a,b for some)
	@MUTANTS=$(MUTANTS) exec tools/simulate-mutants

.PHONY: soak
soak: tools ## a fault every tenth of SOAK (10m) under load: nothing piles up, no decision is wrong
	@SOAK=$${SOAK:-10m} $(GO) test -tags full -count=1 -v -timeout 24h -run '^TestSoak$$' ./test/integration/faults

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZ_TIME (60s)
	@$(GO) list ./... | while read -r package; do \
	  for target in $$($(GO) test -list '^Fuzz' "$$package" | grep '^Fuzz' || true); do \
	    echo "== $$package $$target"; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZ_TIME) "$$package" </dev/null; \
	  done; \
	done

.PHONY: bench
bench: build $(REFERENCE_BIN) ## compare with envoyproxy/ratelimit, and with BASE=another sidecar (25 minutes; BENCH_ROUNDS, BENCH_SECONDS, BENCH_CASES, BENCH_PARTS)
	@command -v redis-server >/dev/null || ./tools/packages redis-server
	@$(GO) build -buildvcs=false -o $(BIN)/ ./bench
	@BENCH_REFERENCE=$(REFERENCE_BIN) BENCH_SIDECAR=$(BIN)/sidecar BENCH_BASE='$(BASE)' exec $(BIN)/bench

$(REFERENCE_BIN):
	@echo "building envoyproxy/ratelimit $(REFERENCE)"
	@GOBIN=$(CURDIR)/$(@D) $(GO) install github.com/envoyproxy/ratelimit/src/service_cmd@$(REFERENCE)

.PHONY: micro
micro: ## benchmarks of match, decide, encode, script and door (MICRO=regexp, MICRO_TIME=1s)
	@$(GO) test -run '^$$' -bench '$(MICRO)' -benchtime $(MICRO_TIME) -benchmem ./...

.PHONY: docs
docs: ## write docs/reference (but rules.md) and the chart's README, schema and copies anew
	@$(GO) test -count=1 -run '^TestReference|^TestPromises' ./test/house ./cmd/spillway -update
	@cd test/chart && $(GO) test -count=1 -run '^TestWritten' . -update

.PHONY: tools
tools: demo-tools $(LANGUAGE_SERVER) $(SCHEMATHESIS) $(HELM) ## install what make test-outer needs: a C compiler, promtool, Chromium, Helm, the YAML language server and schemathesis
	@command -v cc >/dev/null || ./tools/packages gcc libc6-dev # for the race detector
	@command -v promtool >/dev/null || ./tools/packages prometheus
	@command -v chromium >/dev/null || ./tools/packages chromium

.PHONY: demo-tools
demo-tools: ## install Redis, PostgreSQL, curl and Envoy where they are missing
	@tools/servers

.PHONY: clean
clean: ## remove what was built or downloaded
	@rm -rf $(BIN) $(TOOLS) .cache
