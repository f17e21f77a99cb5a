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
# What editors check rule files with: `make editor` lets it check the examples.
LANGUAGE_SERVER = $(TOOLS)/yaml-language-server/node_modules/yaml-language-server/bin/yaml-language-server
# What checks the admin API against its OpenAPI document: `make api` lets it.
SCHEMATHESIS = $(TOOLS)/schemathesis/bin/st
export ENVOY_BIN

# Helm, built from its Go module: `make chart` renders the chart with it.
HELM         = $(TOOLS)/helm/helm

# How long the tests of one package may take. A host that lends out its processors makes them several times as slow.
WITHIN = 40m

# How many of a package's parallel tests run at once: they mostly wait.
AT_ONCE = 6

# Every package but the tests of the whole, which need Envoy, and of pages, which need a browser, and of the admin API, which needs schemathesis. The fault matrix is about time, and the
# tests under load and of exactness are about more calls than the machine can do, so each has the machine to itself and does not run
# under the race detector. The longest come first, so that the others run beside them.
ROOMS = $$($(GO) list ./store ./sidecar ./... | grep -vE '/test/(integration|demo|editor|browser|api|control|gateway)')
WHOLE = $$($(GO) list ./test/integration/... | grep -vE '/(exact|faults|load)$$')
LINT  = $(GO) tool -modfile=tools/go.mod golangci-lint

# The commit goes into the program where git can tell it: not in a tarball, nor in another user's checkout.
VCS   = $(shell git rev-parse HEAD >/dev/null 2>&1 && echo auto || echo false)

define headline
	@printf '\n== %s (%s s so far)\n' "$(1)" "$$(( $$(date +%s) - $${SPILLWAY_T0:-$$(date +%s)} ))"
endef

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the sidecar and the command spillway into bin/
	@$(GO) build -buildvcs=$(VCS) -o $(BIN)/ ./cmd/...

.PHONY: run
run: build ## start the sidecar on the memory store with the rules of examples/rules (needs Go only)
	@RULES=$${RULES:-examples/rules} exec $(BIN)/sidecar

.PHONY: demo
demo: demo-tools build ## Envoy, two sidecars, Redis and an upstream from examples/envoy, without Docker; says what to try
	@$(GO) build -buildvcs=$(VCS) -o $(BIN)/ ./test/demo
	@exec $(BIN)/demo

.PHONY: control
control: build ## PostgreSQL, Redis, the control plane and two sidecars on this machine, with the example published; says what to try
	@command -v redis-server >/dev/null || ./tools/packages redis-server
	@command -v curl >/dev/null || ./tools/packages curl
	@ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || ./tools/packages postgresql
	@BIN=$(BIN) exec examples/control/start.sh

.PHONY: test-control
test-control: tools ## the control plane with a real PostgreSQL, Redis and sidecars, at full length: plans on ten million events, backups, restores, copy rates; also built with the race detector
	@CONTROL_TESTS=full $(GO) test -count=1 -p 1 -v -timeout 60m ./control/... ./archive ./test/control
	@CONTROL_TESTS=full CGO_ENABLED=1 $(GO) test -count=1 -race -timeout 40m ./control/... ./archive ./test/control

.PHONY: capacity
capacity: tools ## measure what docs/explain/capacity.md calculates with: a hundredth of ten million users, and events and usage; changes on eight sidecars while a million users are loaded (takes minutes)
	@CAPACITY=full $(GO) test -timeout 60m -run '^$$' -bench '^BenchmarkCapacity$$' -benchtime 1x -v ./control
	@CAPACITY=full $(GO) test -timeout 60m -run '^TestChangesReachEverySidecar$$' -count=1 -v ./test/control

.PHONY: test
test: ## install what is missing, then lint, unit, race, contract, integration and manifest tests (22 minutes on two cores; 10 more the first time, for what it builds)
	@export SPILLWAY_T0=$$(date +%s) NOT_JUDGED=$$(mktemp); trap 'rm -f "$$NOT_JUDGED"' EXIT; \
	$(MAKE) tools lint unit race rule-tests outside integration test-demo manifests chart release-test; \
	printf '\n== all green in %s s; skipped: nothing, no test can skip\n' "$$(( $$(date +%s) - SPILLWAY_T0 ))"; \
	if [ -s "$$NOT_JUDGED" ]; then printf '\nnot judged, because the host took the processors away:\n'; cat "$$NOT_JUDGED"; fi

.PHONY: lint
lint: ## gofmt, golangci-lint with go vet in it, and go vet of what compiles on macOS
	$(call headline,lint)
	@dirty=$$("$$($(GO) env GOROOT)/bin/gofmt" -l .); \
	if [ -n "$$dirty" ]; then echo "gofmt -w these:"; echo "$$dirty"; exit 1; fi
	@$(LINT) run ./...
	@GOOS=darwin $(GO) vet ./...

.PHONY: unit
unit: ## unit and contract tests of every room, with the full counts of twin walks, exactness and allocations
	$(call headline,unit and contract tests)
	@$(GO) test -timeout $(WITHIN) -parallel $(AT_ONCE) $(ROOMS)

.PHONY: race
race: ## the same under the race detector, which repeats the long ones less often, but for limit and the checks of the code, which start no goroutine, and archive, which make test-control has
	$(call headline,unit and contract tests under the race detector)
	@CGO_ENABLED=1 $(GO) test -timeout $(WITHIN) -parallel $(AT_ONCE) -race $$(echo "$(ROOMS)" | grep -vE '/(limit|archive)$$|spillway-mesh/spillway$$')

.PHONY: rule-tests
rule-tests: ## the rules of examples/rules against their tests, by the command that users run
	$(call headline,rule tests)
	@$(GO) run ./cmd/spillway test examples/rules/tests

.PHONY: outside
outside: tools ## control with its PostgreSQL, pages in a real Chromium, the admin API by schemathesis, the rules of examples/ by the YAML language server, two packages at a time
	$(call headline,control and pages and admin API and editor)
	@$(GO) test -timeout $(WITHIN) -count=1 ./test/control ./test/browser ./test/api ./test/editor

.PHONY: browser
browser: tools ## pages in a real Chromium
	$(call headline,browser)
	@$(GO) test -timeout $(WITHIN) -count=1 ./test/browser

.PHONY: screenshots
screenshots: tools ## take the pictures of the live page in docs/ anew (takes two minutes)
	@$(GO) test -count=1 -timeout 10m -run '^TestScreenshots$$' ./test/browser -screenshots docs/pictures

.PHONY: integration
integration: tools ## the assembled sidecar, built with the race detector, against a real Redis and a real Envoy; without it under load, for exactness and with faults
	$(call headline,integration tests)
	@CGO_ENABLED=1 $(GO) test -timeout $(WITHIN) -count=1 -race $(WHOLE)
	@CGO_ENABLED=1 $(GO) test -count=1 -race -v -run '^TestBypassCount$$' ./test/integration | sed -n 's/^.*: corpus:/corpus:/p' | grep .
	$(call headline,load)
	@$(GO) test -timeout $(WITHIN) -count=1 ./test/integration/load
	@$(MAKE) exact
	$(call headline,fault matrix: the short rows)
	@$(GO) test -timeout $(WITHIN) -count=1 -v ./test/integration/faults

.PHONY: exact
exact: tools ## what several sidecars admit together, held against ideal limiters: the short rows
	$(call headline,exactness: the short rows)
	@$(GO) test -timeout $(WITHIN) -count=1 -v ./test/integration/exact

.PHONY: test-faults
test-faults: tools ## every row of the fault matrix and of exactness at full length, with their tables, and every variant under load (about 45 minutes)
	@FAULTS=full $(GO) test -count=1 -v -timeout 60m ./test/integration/faults
	@FAULTS=full $(GO) test -count=1 -timeout 60m ./test/integration/load
	@FAULTS=full $(GO) test -count=1 -v -timeout 60m ./test/integration/exact

.PHONY: test-gateway
test-gateway: tools $(GATEWAY_BIN) ## a real Envoy Gateway without Kubernetes, its Envoy, and the sidecar in place of its rate limit service (needs root; the first build takes minutes)
	@ENVOY_GATEWAY_BIN=$(GATEWAY_BIN) $(GO) test -count=1 -v -timeout 20m ./test/gateway

$(GATEWAY_BIN):
	@echo "building Envoy Gateway $(GATEWAY)"
	@GOBIN=$(@D) CGO_ENABLED=0 $(GO) install github.com/envoyproxy/gateway/cmd/envoy-gateway@$(GATEWAY)

.PHONY: test-demo
test-demo: tools ## the image's build steps, the compose file against its specification, and the demo with its scripts
	$(call headline,image and demo)
	@$(GO) test -timeout $(WITHIN) -count=1 -p 1 ./test/demo/...
	@cd test/demo/schema && $(GO) tool -modfile=$(CURDIR)/tools/go.mod golangci-lint run ./... && $(GO) test -timeout $(WITHIN) -count=1 ./...

.PHONY: manifests
manifests: tools ## examples/istio against the APIs of Kubernetes and Istio, against Envoy, and at work with requests
	$(call headline,manifests)
	@cd test/manifests && $(GO) tool -modfile=$(CURDIR)/tools/go.mod golangci-lint run ./... && $(GO) test -timeout $(WITHIN) -count=1 ./...

.PHONY: chart
chart: $(HELM) ## the Helm chart by helm lint and helm template, its objects against the APIs, its environment and rules with sidecars
	$(call headline,chart)
	@command -v redis-server >/dev/null || ./tools/packages redis-server
	@command -v promtool >/dev/null || ./tools/packages prometheus
	@cd test/chart && $(GO) tool -modfile=$(CURDIR)/tools/go.mod golangci-lint run ./... && $(GO) test -timeout $(WITHIN) -count=1 ./...

# From an empty cache this takes two to three minutes of two cores.
$(HELM): tools/helm/go.mod tools/helm/go.sum
	@echo "building helm"
	@cd tools/helm && $(GO) build -buildvcs=false -ldflags "-s -w" -o $(CURDIR)/$(HELM) helm.sh/helm/v3/cmd/helm
	@touch $@

.PHONY: release
release: ## VERSION=v0.2.0: programs for four platforms, an SBOM, an OCI image for two, the chart and checksums, in bin/release/VERSION
	@cd tools/release && $(GO) run . -version '$(VERSION)' -source $(CURDIR) -out '$(CURDIR)/bin/release/$(VERSION)' $(RELEASE_FLAGS)

.PHONY: release-test
release-test: ## a release for this machine's platform, made twice: same bytes, valid image, unpacked and started (RELEASE=full for all platforms)
	$(call headline,release)
	@cd tools/release && $(GO) tool -modfile=$(CURDIR)/tools/go.mod golangci-lint run ./... && $(GO) test -count=1 -timeout 30m ./...

.PHONY: editor
editor: $(LANGUAGE_SERVER) ## the rules of examples/ against docs/reference/rules.schema.json, by the YAML language server
	$(call headline,editor)
	@$(GO) test -count=1 ./test/editor

$(LANGUAGE_SERVER): tools/language-server/package-lock.json
	@./tools/yaml-language-server $(TOOLS)/yaml-language-server
	@touch $@

.PHONY: api
api: $(SCHEMATHESIS) ## the admin API against the OpenAPI document that it serves, by schemathesis
	$(call headline,admin API)
	@command -v redis-server >/dev/null || ./tools/packages redis-server
	@$(GO) test -count=1 ./test/api

$(SCHEMATHESIS): tools/schemathesis.txt
	@./tools/schemathesis $(TOOLS)/schemathesis
	@touch $@

.PHONY: soak
soak: tools ## a fault every tenth of SOAK (10m) under load: nothing piles up, no decision is wrong
	@SOAK=$${SOAK:-10m} $(GO) test -count=1 -v -timeout 24h -run '^TestSoak$$' ./test/integration/faults

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZ_TIME (60s)
	@$(GO) list ./... | while read -r package; do \
	  for target in $$($(GO) test -list '^Fuzz' "$$package" | grep '^Fuzz' || true); do \
	    echo "== $$package $$target"; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZ_TIME) "$$package" </dev/null; \
	  done; \
	done

.PHONY: bench
bench: build $(REFERENCE_BIN) ## compare with envoyproxy/ratelimit on one Redis (about 20 minutes; BENCH_ROUNDS, BENCH_SECONDS, BENCH_CASES, BENCH_PARTS)
	@command -v redis-server >/dev/null || ./tools/packages redis-server
	@$(GO) build -buildvcs=false -o $(BIN)/ ./bench
	@BENCH_REFERENCE=$(REFERENCE_BIN) BENCH_SIDECAR=$(BIN)/sidecar exec $(BIN)/bench

$(REFERENCE_BIN):
	@echo "building envoyproxy/ratelimit $(REFERENCE)"
	@GOBIN=$(CURDIR)/$(@D) $(GO) install github.com/envoyproxy/ratelimit/src/service_cmd@$(REFERENCE)

.PHONY: micro
micro: ## benchmarks of match, decide, encode, script and door (MICRO=regexp, MICRO_TIME=1s)
	@$(GO) test -run '^$$' -bench '$(MICRO)' -benchtime $(MICRO_TIME) -benchmem ./...

.PHONY: docs
docs: ## write docs/reference/metrics.md, docs/reference/environment.md, docs/reference/api.md, docs/reference/command.md, docs/reference/rules.schema.json and the chart's README, schema and copies anew
	@$(GO) test -count=1 -run '^TestReference' ./test/house ./cmd/spillway -update
	@cd test/chart && $(GO) test -count=1 -run '^TestWritten' . -update

.PHONY: tools
tools: demo-tools $(LANGUAGE_SERVER) $(SCHEMATHESIS) ## install redis-server, PostgreSQL, a C compiler, curl, promtool, Chromium, Envoy, the YAML language server and schemathesis where they are missing
	@command -v cc >/dev/null || ./tools/packages gcc libc6-dev # for the race detector
	@command -v promtool >/dev/null || ./tools/packages prometheus
	@ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || ./tools/packages postgresql
	@command -v chromium >/dev/null || ./tools/packages chromium

.PHONY: demo-tools
demo-tools: ## install redis-server, curl and Envoy where they are missing
	@command -v redis-server >/dev/null || ./tools/packages redis-server
	@command -v curl >/dev/null || ./tools/packages curl
	@[ -x "$$ENVOY_BIN" ] || { [ "$$ENVOY_BIN" = "$(CURDIR)/$(TOOLS)/envoy/envoy" ] && ./tools/envoy $(TOOLS)/envoy; } || \
	  { echo "ENVOY_BIN is $$ENVOY_BIN, which is no program" >&2; exit 1; }

.PHONY: clean
clean: ## remove what was built or downloaded
	@rm -rf $(BIN) $(TOOLS) .cache
