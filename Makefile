# Everything runs in .venv, made on first use; PYTHON chooses the interpreter (3.11 or newer).
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DEMO_OUT ?= runs/demo

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-train lint bench docs clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "trueup needs Python 3.11 or newer, got $$($(PYTHON) --version). Nothing was installed. Name one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "$(PYTHON) cannot make a virtual environment. Install it, on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }

$(VENV)/.demo: $(BIN)/python pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[report]'
	@touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo  ## the experiment of the README: table, results.json, report.html
	$(BIN)/trueup demo --out $(DEMO_OUT)

test: $(VENV)/.dev  ## lint, types, import contracts, all fast tests with coverage
	$(MAKE) lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --cov --cov-report=term $(ARGS)

test-slow: $(VENV)/.dev  ## the long proofs as well
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m 'slow or not slow' $(ARGS)

test-train: $(VENV)/.dev  ## what needs torch: policy, world model, training by TRL
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[train]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/scorers tests/experiments/strings tests/tasks/strings tests/adapters tests/rewardmodel $(ARGS)

lint: $(VENV)/.dev  ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.dev  ## benchmarks of step and refit, beside their baselines
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest benchmarks --benchmark-only -o addopts= -o python_files='bench_*.py' $(ARGS)

docs: $(BIN)/python  ## the documentation site, in site/
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[docs]'
	$(BIN)/mkdocs build --strict

clean:  ## remove what was made
	rm -rf $(VENV) site runs .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .coverage
