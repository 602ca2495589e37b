# One door. Each target is one line over .venv.
PYTHON ?= python3
BIN := .venv/bin
MODEL ?=

.PHONY: env up test check fix bench clients clean

env: .venv/.made

.venv/.made: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

up: env
	@$(BIN)/splash up $(MODEL)

test: env
	$(BIN)/pytest

check: env
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/lint-imports && $(BIN)/mypy

fix: env
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: env
	$(BIN)/python -m benchmarks --quick

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
