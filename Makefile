# A fresh clone needs Python >= 3.11, git and make; every target sets up what it needs in .venv first.
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check -qq
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
# Resolved for the oldest Python that is supported, so that the versions suit the newer ones too.
LOCK   := $(BIN)/uv pip compile --quiet --python-version 3.11 --no-header --no-annotate --no-emit-index-url --no-emit-find-links

# Each file of tests is run by one of several processes; tests/conftest.py says how many and in which order. PROCESSES=1: by this one.
PROCESSES ?= auto
SPREAD := $(if $(filter-out 0 1,$(PROCESSES)),--numprocesses=$(PROCESSES) --dist=loadfile --no-loadscope-reorder)

# Without bytecode, which images of Python tend to switch off, each process of tests and each server that they start compiles all it imports.
unexport PYTHONDONTWRITEBYTECODE

# What runs in the tests' own processes: five of six tests, a quarter of the time.
QUICK := $(addprefix tests/,flows api wire migrations architecture unit)
PYTEST = PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help serve test test-all faults check format conform bench bench-replicas openapi lock models vendor docker clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

serve: $(VENV)/.runtime ## Start the server here (ARGS="--port 5000")
	@$(BIN)/opensession serve $(ARGS)

test: $(VENV)/.dev ## Run the tests that start no servers or clients of their own, or those you name (ARGS="tests/faults -k kill")
	@$(PYTEST) $(SPREAD) $(if $(findstring tests/,$(ARGS)),,$(QUICK)) $(ARGS)

test-all: $(VENV)/.dev ## Run all tests, those of processes, browsers and faults too (PROCESSES=1 runs them in one process)
	@$(PYTEST) $(SPREAD) $(ARGS)

faults: $(VENV)/.dev ## Run the fault and abuse tests in their long form (ARGS="-k kill")
	@OPENSESSION_LONG=1 $(PYTEST) -o faulthandler_timeout=3600 -o timeout=0 tests/faults tests/replicas tests/flows/test_revert_stateful.py tests/clients/test_run_attach.py tests/clients/test_web_app.py tests/clients/test_openchamber.py tests/clients/test_beside_opencode.py tests/clients/test_every_method_beside.py tests/clients/test_language_servers_beside.py tests/clients/test_neovim_plugins.py tests/clients/test_acpx.py tests/clients/test_codecompanion.py tests/clients/test_acp_beside.py tests/clients/test_acp_toad.py tests/clients/test_acp_cost.py $(ARGS)

check: $(VENV)/.dev ## Lint, formatting, strict types, import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: $(VENV)/.dev ## Format the code and fix what the linter can
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

conform: $(VENV)/.dev ## Compare with the scenarios recorded from OpenCode (ARGS="--only fork")
	@PYTHON=$(BIN)/python scripts/against.sh conform $(ARGS)

bench: $(VENV)/.dev ## Measure speed (ARGS="--what stream,list")
	@PYTHON=$(BIN)/python scripts/against.sh bench $(ARGS)

bench-replicas: $(VENV)/.dev ## Measure several servers on PostgreSQL and Redis (ARGS="--replicas 3 --load 30x150")
	@$(BIN)/python scripts/bench_replicas.py $(ARGS)

openapi: $(VENV)/.dev ## Write openapi.yaml anew, and what is generated of the Python client
	@$(BIN)/opensession openapi > openapi.yaml
	@cd client && ../$(BIN)/python -m generator

lock: $(VENV)/.dev ## Resolve the lock files anew; ARGS=--upgrade takes the newest versions
	@$(LOCK) $(ARGS) --output-file requirements.lock pyproject.toml
	@$(LOCK) $(ARGS) --extra replicas --extra otel --constraint requirements.lock --output-file requirements-replicas.lock pyproject.toml
	@$(LOCK) $(ARGS) --all-extras --constraint requirements-replicas.lock --output-file requirements-dev.lock pyproject.toml

models: $(VENV)/.dev ## Fetch the list of models anew from models.dev; ARGS="api.json 2026-09-28" takes a file of that day
	@$(BIN)/python scripts/refresh_models.py $(ARGS)

vendor: ## Copy the page's libraries anew, at the versions that app/page/vendor/package.json names (needs npm)
	@scripts/vendor.sh

docker: ## Build the image
	docker build --tag opensession .

clean: ## Remove the environment and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build client/dist tests/clients/node_modules

# The stamps make a second run instant; a changed lock file or pyproject.toml installs again.
$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer with its venv module is needed and was not found. Install it (Debian: apt-get install python3 python3-venv), or name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "Setting up $(VENV) with $$($(PYTHON) --version) (about half a minute, once) ..."
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: requirements.lock pyproject.toml | $(BIN)/python
	@$(PIP) install --requirement requirements.lock
	@$(PIP) install --no-deps --editable .
	@$(BIN)/python -m compileall -q app migrations  # an editable install leaves it out; a third of the first start
	@touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.runtime
	@$(PIP) install --requirement requirements-dev.lock
	@touch $@
