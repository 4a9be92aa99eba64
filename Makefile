# Needs Python 3.11 or later, pip and make. Everything installed goes into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
PYTEST := $(BIN)/python -m pytest -q -n auto --maxprocesses 4
DEV := $(VENV)/.stamp-dev
BENCH := $(VENV)/.stamp-bench

# What the installed copy is made of, tools included. Its checksum names the stamp, so .venv/bin/tide is always
# what the sources say, also after a file went away or the branch changed.
MADE_OF := $(shell { find src pyproject.toml hatch_build.py -type f ! -name '*.pyc' | LC_ALL=C sort | xargs cksum; \
	command -v $(CC) $(PYTHON); echo "$$TIDEGATE_PURE"; } 2>/dev/null | cksum | tr -d ' ')
INSTALLED := $(VENV)/.stamp-tidegate-$(MADE_OF)

# Lists what project.dependencies and the named extras ask for, one a line.
REQUIREMENTS := $(BIN)/python -c 'import sys, tomllib; \
	p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	print(*p["dependencies"], *(r for x in sys.argv[1:] for r in p["optional-dependencies"][x]), sep="\n")'

# The suites quick enough to run before every commit.
CHECK_TESTS := $(wildcard tests/tidy tests/unit tests/scenarios)

# make bench JSON=FILE writes the results there; SMOKE=1 runs a few seconds of it.
BENCH_ARGS := $(if $(SMOKE),--smoke) $(if $(JSON),--json "$(JSON)")

# The suites that say what is decided. On the installed copy they judge the compiled kernel.
COMPILED_TESTS := $(wildcard tests/scenarios tests/property tests/compiled)

.PHONY: help setup demo demo-story test test-compiled lint check bench clean

help:
	@echo "make setup   a virtual environment in .venv with the tide command and the dev tools"
	@echo "make demo    a short run of the scheduler on this machine"
	@echo "make demo-story   100 models behind one large job, under two policies, in a minute"
	@echo "make lint    format, lint, types, import contracts"
	@echo "make check   lint and the quick tests (under 90 s)"
	@echo "make test    every test but the slow ones, on the sources (under 5 min on 2 cores)"
	@echo "make test-compiled   the suites about decisions, on the installed copy with its compiled kernel"
	@echo "make bench   the benchmarks; JSON=FILE keeps the results, SMOKE=1 is a short run"
	@echo "make clean   remove what the other targets made"

setup: $(INSTALLED)
	@echo "setup: ready, $(BIN)/tide"

$(DEV): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("setup: needs Python 3.11 or later" if sys.version_info < (3, 11) else 0)'
	@echo "setup: what tidegate needs and its dev tools into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(REQUIREMENTS) dev > $(VENV)/dev.txt
	@$(PIP) install -r $(VENV)/dev.txt
	@touch $@

# Without isolation: the build tools are dev tools. By the wheel, because pip would hide what the build says.
$(INSTALLED): $(DEV)
	@echo "setup: building tidegate (about 30 s with a C compiler, when the kernel changed)"
	@rm -rf $(VENV)/wheel $(VENV)/.stamp-tidegate-*
	@$(BIN)/python -m hatchling build -t wheel -d $(VENV)/wheel >$(VENV)/wheel.log 2>&1 || { cat $(VENV)/wheel.log; exit 1; }
	@grep '^tidegate: ' $(VENV)/wheel.log || true
	@$(PIP) install --no-deps --force-reinstall $(VENV)/wheel/*.whl
	@PYTHONPATH= $(BIN)/tide --version
	@touch $@

$(BENCH): $(DEV)
	@echo "setup: the rivals of the benchmarks into $(VENV)"
	@$(REQUIREMENTS) bench > $(VENV)/bench.txt
	@$(PIP) install -r $(VENV)/bench.txt
	@touch $@

demo: $(INSTALLED)
	@$(BIN)/tide demo

demo-story: $(INSTALLED)
	@$(BIN)/tide demo --story

test: $(INSTALLED)
	@echo "test: every suite but the slow tests"
	@$(PYTEST) -m 'not slow'

test-compiled: $(INSTALLED)
	@if PYTHONPATH= $(BIN)/python -c 'import sys, tidegate; sys.exit(not tidegate.compiled())'; then \
		echo "test: what is decided, by the compiled kernel"; \
		PYTHONPATH= $(PYTEST) -o pythonpath=. -m 'not slow' $(COMPILED_TESTS); \
	else echo "!!! test-compiled SKIPPED: $$(grep '^tidegate: ' $(VENV)/wheel.log)"; fi

lint: $(DEV)
	@echo "lint: format"
	@$(BIN)/python -m ruff format --check -q .
	@echo "lint: rules"
	@$(BIN)/python -m ruff check -q .
	@echo "lint: types"
	@$(BIN)/python -m mypy --no-error-summary
	@echo "lint: import contracts"
	@out=$$(PYTHONPATH=src $(BIN)/lint-imports --no-logo 2>&1) || { printf '%s\n' "$$out"; exit 1; }

check: lint
	@echo "check: $(CHECK_TESTS)"
	@$(PYTEST) -m 'not slow' $(CHECK_TESTS)

bench: $(INSTALLED) $(BENCH)
	@echo "bench: $(if $(SMOKE),a short run,the full run)$(if $(JSON), into $(JSON))"
	@PYTHONPATH= $(BIN)/python -m bench $(BENCH_ARGS)

clean:
	@echo "clean: $(VENV), builds, caches"
	@rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
