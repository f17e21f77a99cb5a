# Spillway: make help lists what there is. make run needs Go alone; make test installs what it needs.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

GO           ?= go
BIN          := bin
TOOLS        := .tools
# Envoy's program: the caller's own, else the one that `make tools` fetches.
ENVOY_BIN    ?= $(CURDIR)/$(TOOLS)/envoy/envoy
FUZZ_TIME    ?= 60s
BENCH        ?= .
BENCH_TIME   ?= 1s
export ENVOY_BIN

# Packages whose tests count arithmetic or allocations by the hundred thousand run without the race detector, which would
# make them ten times slower and changes what is allocated; the files in question carry the tag `!race`.
LINT := $(GO) tool -modfile=tools/go.mod golangci-lint

define headline
	@printf '\n== %s (%s s so far)\n' "$(1)" "$$(( $$(date +%s) - $${SPILLWAY_T0:-$$(date +%s)} ))"
endef

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the sidecar into bin/
	@$(GO) build -o $(BIN)/ ./cmd/...

.PHONY: run
run: build ## start the sidecar on the memory store with the rules of examples/rules (needs Go only)
	@echo "Try, again and again until it says 429:"
	@sed -n 's/^curl /  curl /p' README.md | head -n 1
	@RULES=$${RULES:-examples/rules} exec $(BIN)/sidecar

.PHONY: test
test: ## install what is missing, then lint, unit, race, contract and integration tests
	@export SPILLWAY_T0=$$(date +%s); \
	$(MAKE) tools; $(MAKE) lint; $(MAKE) race; $(MAKE) exact; $(MAKE) integration; \
	printf '\n== all green in %s s\n' "$$(( $$(date +%s) - SPILLWAY_T0 ))"

.PHONY: lint
lint: ## gofmt, go vet, golangci-lint
	$(call headline,lint)
	@dirty=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); \
	if [ -n "$$dirty" ]; then echo "gofmt -w these:"; echo "$$dirty"; exit 1; fi
	@$(GO) vet ./...
	@$(LINT) run ./...

.PHONY: unit
unit: ## the tests of every room, without the race detector (quick)
	$(call headline,unit and contract tests)
	@$(GO) test $$($(GO) list ./... | grep -v /test/integration)

.PHONY: race
race: ## unit and contract tests of every room under the race detector
	$(call headline,unit and contract tests under the race detector)
	@$(GO) test -race $$($(GO) list ./... | grep -v /test/integration)

.PHONY: exact
exact: ## the tests that the race detector would distort: twin walks, exactness, allocations
	$(call headline,twin walks and exactness and allocations)
	@$(GO) test $$($(GO) list -f '{{if .TestGoFiles}}{{.ImportPath}}{{end}}{{if .XTestGoFiles}} {{.ImportPath}}{{end}}' ./... | tr ' ' '\n' | grep -v /test/integration | sort -u)

.PHONY: integration
integration: tools ## the assembled sidecar against a real Redis and a real Envoy
	$(call headline,integration tests)
	@$(GO) test -count=1 ./test/integration/...

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZ_TIME (60s)
	@$(GO) list ./... | while read -r package; do \
	  for target in $$($(GO) test -list '^Fuzz' "$$package" | grep '^Fuzz' || true); do \
	    echo "== $$package $$target"; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZ_TIME) "$$package" </dev/null; \
	  done; \
	done

.PHONY: bench
bench: ## benchmarks of match, decide, encode, script and door (BENCH=regexp, BENCH_TIME=1s)
	@$(GO) test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCH_TIME) -benchmem ./...

.PHONY: tools
tools: ## install redis-server, curl and Envoy where they are missing
	@command -v redis-server >/dev/null || ./tools/packages redis-server
	@command -v curl >/dev/null || ./tools/packages curl
	@[ -x "$$ENVOY_BIN" ] || { [ "$$ENVOY_BIN" = "$(CURDIR)/$(TOOLS)/envoy/envoy" ] && ./tools/envoy $(TOOLS)/envoy; } || \
	  { echo "ENVOY_BIN is $$ENVOY_BIN, which is no program" >&2; exit 1; }

.PHONY: clean
clean: ## remove what was built or downloaded
	@rm -rf $(BIN) $(TOOLS) .cache
