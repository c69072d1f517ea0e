# make demo | test | check | bench | clean.  VENV=path uses another environment, PYTHON=path another interpreter.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INPUTS := pyproject.toml constraints.txt
# `make check` looks at what an installed wheel holds, not at the folders.
INSTALLED := build/installed
PYTEST_ARGS ?=
# BENCH_ARGS=--quick measures a small part of everything, in minutes, and changes no results.
BENCH_ARGS ?=

.PHONY: demo test check bench format clean
.DEFAULT_GOAL := test

demo: $(VENV)/.installed-engine
	$(BIN)/kvstrata warmup
	$(BIN)/kvstrata demo

test: $(VENV)/.installed-dev
	$(BIN)/pytest $(PYTEST_ARGS)

bench: $(VENV)/.installed-bench
	$(BIN)/kvstrata warmup
	$(BIN)/python bench/core.py
	$(BIN)/python bench/validation.py
	$(BIN)/python bench/checksum.py
	$(BIN)/python bench/event_store.py $(BENCH_ARGS)
	$(BIN)/python bench/tiers.py $(BENCH_ARGS)
	$(BIN)/python bench/follower.py $(BENCH_ARGS)
	$(BIN)/python bench/observed.py $(BENCH_ARGS)
	$(BIN)/python bench/admin.py $(BENCH_ARGS)
	$(BIN)/python bench/compare.py $(BENCH_ARGS)
	$(BIN)/python bench/replays.py $(BENCH_ARGS)
	$(BIN)/python bench/instructions.py $(BENCH_ARGS)
	$(BIN)/python bench/report.py

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf build
	$(PIP) install --quiet --no-deps --no-build-isolation --target $(INSTALLED) .
	MYPYPATH=$(INSTALLED) $(BIN)/mypy -p kvstrata
	PYTHONPATH=$(INSTALLED) $(BIN)/lint-imports --no-cache

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv build dist *.egg-info src/*.egg-info .*_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"expected Python 3.11 or later, found {sys.version.split()[0]} at {sys.executable}; pass PYTHON=path")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-engine: $(INPUTS) | $(BIN)/python
	$(PIP) install --constraint constraints.txt --editable '.[engine,tiers,api]'
	touch $@

$(VENV)/.installed-bench: $(INPUTS) | $(BIN)/python
	$(PIP) install --constraint constraints.txt --editable '.[engine,tiers,api,bench]'
	touch $@ $(VENV)/.installed-engine

$(VENV)/.installed-dev: $(INPUTS) | $(BIN)/python
	$(PIP) install --constraint constraints.txt --editable '.[engine,tiers,api,postgres,dev]'
	touch $@ $(VENV)/.installed-engine
