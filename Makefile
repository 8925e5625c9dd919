# One target per intent. `make test` on a fresh clone does all the set-up.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: setup run check format test bench docs lock clean

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# Three brokers and a ZooKeeper, until Ctrl-C. UP_ARGS="--brokers 1" for other options of `ottla up`.
run: setup
	$(BIN)/ottla up $(UP_ARGS)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --explicit-package-bases tests bench scripts
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: setup
	$(BIN)/pytest $(PYTEST_ARGS)

bench: setup
	$(BIN)/python bench/codec.py

# The generated pages; a test fails when they are not current.
docs: setup
	$(BIN)/python -m ottla.broker.config > docs/CONFIG.md

# Needs uv. Writes the versions and hashes that every machine installs.
lock:
	uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --extra dev --extra zookeeper --generate-hashes \
	  --no-emit-index-url --custom-compile-command "make lock" --output-file requirements.lock

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
