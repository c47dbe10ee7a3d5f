# make train    train a first model and draw its attention
# make test     run all tests
# make quick    run the tests that are not marked slow
# make lint     check style, docstrings and types
# make docs     build the documentation into docs/build/html

PYTHON ?= python3
BIN := .venv/bin

.PHONY: train test quick lint docs
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
	$(BIN)/pytest -q tests/test_docstrings.py

docs: .venv/installed
	rm -rf docs/build/html docs/reference/api
	$(BIN)/python -m sphinx -q -W --keep-going -b html -d docs/build/doctrees docs docs/build/html

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@
