# One door. Each target is one line over .venv.
PYTHON ?= python3
BIN := .venv/bin
MODEL ?=
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: env up test check fix bench clients sdks screenshots mac-acceptance clean

env: .venv/.made

.venv/.made: pyproject.toml constraints.txt
	@echo "Making the environment in .venv: downloads once, takes a few minutes."
	@$(PYTHON) -m venv .venv && $(PIP) -e . && touch $@

.venv/.made-dev: .venv/.made
	@echo "Adding the tools of tests and checks to .venv."
	@$(PIP) -e '.[dev]' && touch $@

up: env
	@$(BIN)/splash up $(MODEL)

test: .venv/.made-dev
	$(BIN)/pytest -m 'not timed' --numprocesses 2 --dist loadfile
	$(BIN)/pytest -m timed

check: .venv/.made-dev
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/lint-imports && $(BIN)/mypy

fix: .venv/.made-dev
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: .venv/.made-dev
	$(BIN)/python -m benchmarks --quick

clients: .venv/.made-dev
	$(BIN)/python -m tests.clients

sdks: .venv/.made-dev
	$(BIN)/python -m tests.sdks

screenshots: .venv/.made-dev
	@$(BIN)/python -m tests.browser.screenshots

mac-acceptance: .venv/.made-dev
	@$(BIN)/python -m tests.mac_acceptance $(MODEL)

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
