# make train    a first model, from nothing to its pictures
# make test     the whole suite
# make quick    the suite without what is marked slow
# make lint     style and types

PYTHON ?= python3
BIN := .venv/bin

.PHONY: train test quick lint
.DEFAULT_GOAL := train

train: .venv/installed
	$(BIN)/attnlab train

test: .venv/installed
	$(BIN)/pytest -n auto

quick: .venv/installed
	$(BIN)/pytest -n auto -m "not slow"

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@
