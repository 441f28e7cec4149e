# Two commands: `make run` starts Proctor and answers an example question; `make test` proves it.
# Everything is installed under .venv and .venv-sandbox; nothing is needed beforehand but Python 3.11 or newer.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.ONESHELL:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
# Processes that run the tests, one more than cores as many tests wait; a file's tests stay together.
WORKERS ?= 3
# Fewer run the long ones, which load the machine themselves.
PROVERS ?= 2
BIN := .venv/bin
STAMPS := .stamps
QUESTION ?= What is the mileage rate for cars, and within how many days must I submit my claim?
# What the suite uses at run time, and what only its tests use.
RUN_PACKAGES := bubblewrap fonts-noto-cjk
# Node is taken from Debian only where none is.
TEST_PACKAGES := chromium nginx postgresql prometheus $(if $(shell command -v npm),,nodejs npm)
UV_COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"
CODE := services clients tests benchmarks examples $(wildcard protos/*.py docs/*.py)

.PHONY: help
help: ## Say what there is to make
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 12

# --- Set-up ----------------------------------------------------------------------------------------------------------

.PHONY: setup
setup: $(STAMPS)/run ## Install the suite and the sandbox's own environment

$(STAMPS)/venv: requirements/uv.txt requirements/dev.txt pyproject.toml
	@mkdir -p $(STAMPS)
	[ -x $(BIN)/python ] || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements/dev.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	# Compiled once here, whatever the environment says about writing bytecode: it is most of what a start would do.
	$(BIN)/python -m compileall -q services protos/gen clients/python
	touch $@

$(STAMPS)/sandbox: requirements/sandbox.txt $(STAMPS)/venv
	@[ -x .venv-sandbox/bin/python ] || $(PYTHON) -m venv --without-pip .venv-sandbox
	$(BIN)/uv pip sync --quiet --compile-bytecode --python .venv-sandbox/bin/python --require-hashes requirements/sandbox.txt
	touch $@

# Debian packages are installed only by root, and only those that are missing. `proctor doctor` tells everybody else.
define install_packages
	@mkdir -p $(STAMPS)
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		missing=$$(for name in $(1); do dpkg -s "$$name" 2>/dev/null | grep -q '^Status: install ok' || echo "$$name"; done)
		if [ -n "$$missing" ]; then
			apt-get -qq update
			DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $$missing >/dev/null
		fi
	fi
	touch $@
endef

$(STAMPS)/run-packages:
	$(call install_packages,$(RUN_PACKAGES))

$(STAMPS)/test-packages:
	$(call install_packages,$(RUN_PACKAGES) $(TEST_PACKAGES))

$(STAMPS)/run: $(STAMPS)/venv $(STAMPS)/sandbox $(STAMPS)/run-packages
	@touch $@

# The stock clients that the wires are tested with, pinned by version and digest. Without npm, or where no registry
# answers, their tests are skipped and say so; an install that fails although a registry answers is an error.
$(STAMPS)/clients/.installed: tests/clients/package.json tests/clients/package-lock.json $(STAMPS)/test-packages
	@mkdir -p $(@D)
	cp tests/clients/package.json tests/clients/package-lock.json tests/clients/.npmrc $(@D)
	if ! command -v npm >/dev/null; then
		echo "no npm: the tests with stock AI SDK and AG-UI clients will be skipped" >&2
	elif ! (cd $(@D) && npm ci --silent); then
		(cd $(@D) && npm view --silent ai@latest version >/dev/null) && { echo "npm ci failed" >&2; exit 1; }
		echo "no npm registry: the tests with stock AI SDK and AG-UI clients will be skipped" >&2
	fi
	touch $@

$(STAMPS)/test: $(STAMPS)/run $(STAMPS)/test-packages $(STAMPS)/clients/.installed
	@touch $@

# --- Use -------------------------------------------------------------------------------------------------------------

.PHONY: run
run: $(STAMPS)/run ## Start Proctor, ask the handbook a question, keep serving (ONCE=1: stop after the answer)
	@$(BIN)/proctor up --ingest examples/handbook --source handbook --ask "$(QUESTION)" $(if $(ONCE),--once)

# --- Proof -----------------------------------------------------------------------------------------------------------

.PHONY: test
test: $(STAMPS)/test ## Run the tests, all but the long ones
	@$(BIN)/pytest -m "not prove" -n $(WORKERS) --dist loadfile $(ARGS)

# Ends well without Go or its module proxy, but says so: nothing else lets a test of Weaviate be left out.
.PHONY: test-weaviate
test-weaviate: $(STAMPS)/test ## Run the tests of the scaled index against a real Weaviate, built with Go unless it is there
	@code=0; $(BIN)/python -m tests.support.weaviate_server --wait >/dev/null || code=$$?
	if [ "$$code" = 3 ]; then
		echo "######## SKIPPED: the tests against a real Weaviate did not run; the line above says what this machine lacks" >&2
		exit 0
	fi
	[ "$$code" = 0 ]
	$(BIN)/pytest -k weaviate tests/contract/test_retrieval_index.py tests/wire/test_retrieval_weaviate.py $(ARGS)

.PHONY: prove
prove: $(STAMPS)/test ## Run the long tests: faults, abuse, load
	@$(BIN)/pytest -m prove -n $(PROVERS) --dist loadfile $(ARGS)

.PHONY: check
check: $(STAMPS)/test ## Check form, types, contracts, generated code and what must not be in the tree
	@$(BIN)/ruff format --check --quiet $(CODE)
	$(BIN)/ruff check --quiet $(CODE)
	$(BIN)/mypy
	PYTHONPATH=.:protos/gen:clients/python $(BIN)/lint-imports --no-cache >$(STAMPS)/imports 2>&1 || { cat $(STAMPS)/imports; exit 1; }
	(cd protos && ../$(BIN)/buf lint && ../$(BIN)/buf format --diff --exit-code --path proctor)
	$(MAKE) --no-print-directory check-generated check-tree

.PHONY: check-generated
check-generated:
	@scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python protos/generate.py --out "$$scratch/gen"
	diff -r --exclude=__pycache__ protos/gen "$$scratch/gen" || { echo "protos/gen is stale; run make protos"; exit 1; }
	$(BIN)/python protos/catalogue.py --out "$$scratch/events.md"
	diff docs/events.md "$$scratch/events.md" || { echo "docs/events.md is stale; run make protos"; exit 1; }
	$(BIN)/python docs/configuration.py --out "$$scratch/configuration.md"
	diff docs/configuration.md "$$scratch/configuration.md" || { echo "docs/configuration.md is stale; run make docs"; exit 1; }
	$(BIN)/python docs/errors.py --out "$$scratch/errors.md"
	diff docs/errors.md "$$scratch/errors.md" || { echo "docs/errors.md is stale; run make docs"; exit 1; }

# Locked requirements carry no address, and no tracked file a registry's name or a path of the machine it was made on.
.PHONY: check-tree
check-tree:
	@if grep -nE '://|^ *--(extra-)?index|^ *--find-links' requirements/*.txt; then echo "an address in requirements"; exit 1; fi
	if git grep -nE '"resolved"' -- '*package-lock.json'; then echo "an address in a lock file"; exit 1; fi
	if git grep -nIE 'py[p]i\.org|python[h]osted|npm[j]s\.(org|com)|registry\.yarn[p]kg' -- . ; then echo "a registry's host"; exit 1; fi
	if git grep -nIF "$(CURDIR)/" -- . ; then echo "a path of this machine"; exit 1; fi

.PHONY: bench
bench: $(STAMPS)/test ## Run the benchmarks
	@for each in benchmarks/*.py; do echo "== $$each"; $(BIN)/python "$$each"; done

.PHONY: bench-peers
bench-peers: $(STAMPS)/test ## Measure Proctor beside other products (installs them under .bench; PEERS="NAME …", QUICK=1)
	@$(BIN)/python -m benchmarks.peers $(if $(QUICK),--quick) $(PEERS)

# --- Upkeep ----------------------------------------------------------------------------------------------------------

.PHONY: protos
protos: $(STAMPS)/venv ## Format the protos, write protos/gen and docs/events.md
	@(cd protos && ../$(BIN)/buf format -w --path proctor && ../$(BIN)/buf lint)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python protos/generate.py
	$(BIN)/python protos/catalogue.py

.PHONY: docs
docs: $(STAMPS)/venv ## Write the pages that are made from the code
	@$(BIN)/python docs/configuration.py
	$(BIN)/python docs/errors.py

.PHONY: format
format: $(STAMPS)/venv ## Format the code and mend what ruff can
	@$(BIN)/ruff format --quiet $(CODE)
	$(BIN)/ruff check --quiet --fix $(CODE)

.PHONY: lock
lock: ## Choose versions anew within the bounds of pyproject.toml and requirements/*.in
	@[ -x $(BIN)/uv ] || { $(PYTHON) -m venv .venv && $(BIN)/python -m pip install --quiet -r requirements/uv.in; }
	$(UV_COMPILE) $(ARGS) requirements/uv.in -o requirements/uv.txt
	$(UV_COMPILE) $(ARGS) pyproject.toml -o requirements/suite.txt
	$(UV_COMPILE) $(ARGS) pyproject.toml requirements/dev.in -c requirements/suite.txt -o requirements/dev.txt
	$(UV_COMPILE) $(ARGS) requirements/sandbox.in -o requirements/sandbox.txt

.PHONY: clean
clean: ## Remove what set-up and the suite left, data included
	@rm -rf .venv .venv-sandbox $(STAMPS) .proctor
