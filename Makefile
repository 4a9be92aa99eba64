# Needs Python 3.11 or later, pip and make. Everything installed goes into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
PYTEST := $(BIN)/python -m pytest -q -n auto --maxprocesses 4
DEV := $(VENV)/.stamp-dev
BENCH := $(VENV)/.stamp-bench

# The suites quick enough to run before every commit.
CHECK_TESTS := $(wildcard tests/tidy tests/unit tests/scenarios)

# make bench JSON=FILE writes the results there; SMOKE=1 runs a few seconds of it.
BENCH_ARGS := $(if $(SMOKE),--smoke) $(if $(JSON),--json "$(JSON)")

.PHONY: help setup demo test check bench clean

help:
	@echo "make setup   a virtual environment in .venv with the tide command and the dev tools"
	@echo "make demo    a short run of the scheduler on this machine"
	@echo "make check   format, lint, types, import contracts, quick tests (under 90 s)"
	@echo "make test    every test but the slow ones (under 5 min on 2 cores)"
	@echo "make bench   the benchmarks; JSON=FILE keeps the results, SMOKE=1 is a short run"
	@echo "make clean   remove what the other targets made"

setup: $(DEV)
	@echo "setup: ready, $(BIN)/tide"

$(DEV): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("setup: needs Python 3.11 or later" if sys.version_info < (3, 11) else 0)'
	@echo "setup: tidegate and its dev tools into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install -e '.[dev]'
	@touch $@

$(BENCH): $(DEV)
	@echo "setup: the rival simulator of the benchmark into $(VENV)"
	@$(PIP) install -e '.[bench]'
	@touch $@

demo: $(DEV)
	@$(BIN)/tide demo

test: $(DEV)
	@echo "test: every suite but the slow tests"
	@$(PYTEST) -m 'not slow'

check: $(DEV)
	@echo "check: format"
	@$(BIN)/python -m ruff format --check -q .
	@echo "check: lint"
	@$(BIN)/python -m ruff check -q .
	@echo "check: types"
	@$(BIN)/python -m mypy --no-error-summary
	@echo "check: import contracts"
	@out=$$($(BIN)/lint-imports --no-logo 2>&1) || { printf '%s\n' "$$out"; exit 1; }
	@echo "check: $(CHECK_TESTS)"
	@$(PYTEST) -m 'not slow' $(CHECK_TESTS)

bench: $(BENCH)
	@echo "bench: $(if $(SMOKE),a short run,the full run)$(if $(JSON), into $(JSON))"
	@$(BIN)/python -m bench $(BENCH_ARGS)

clean:
	@echo "clean: $(VENV), builds, caches"
	@rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
