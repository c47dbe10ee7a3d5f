# make train    train a first model and draw its attention
# make test     run all tests but those of make clusters, make experiments and make docs
# make clusters run the tests that start Slurm, Ray, servers or several launchers on this machine
# make quick    run the tests that are not marked slow
# make hydra    run the quick tests that use Hydra with Hydra 1.4 and OmegaConf 2.4
# make lint     check style, docstrings and types
# make experiments  run the path of every experiment with tiny data and networks
# make docs     build the documentation into docs/build/html, run its notebooks, look at its pages (make html), and run its examples (make examples)

PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/pytest --dist worksteal
# Many slow tests wait for processes that they started, so two workers share a core
SHARED := -n $$((2 * $$(nproc)))
# Tests that compose configurations, plan sweeps or parse command lines with Hydra
USES_HYDRA := tests/config \
    $(addprefix tests/cli/test_, commands.py completion.py foreign_files.py hostile_use.py sweep_arguments.py) \
    $(addprefix tests/jobs/test_, grid.py hyperparameter_search.py ledger.py preflight.py studies.py sweeps.py)

# Workers and the processes that they start share compiled modules and tests
export PYTHONDONTWRITEBYTECODE :=

.PHONY: train test clusters quick hydra lint experiments docs html examples
.DEFAULT_GOAL := train

train: .venv/installed
	$(BIN)/attnlab train

test: .venv/tests
	$(PYTEST) $(SHARED) -m "not examples and not site and not clusters and not experiments"

clusters: .venv/tests
	$(BIN)/pytest -m clusters --durations=0 tests/jobs tests/training

quick: .venv/tests
	$(PYTEST) -n $$(nproc) -m "not slow and not clusters"

hydra: .venv/hydra-1.4/installed
	.venv/hydra-1.4/bin/python -m pytest -n $$(nproc) -m "not slow and not clusters" $(USES_HYDRA)

lint: .venv/tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/test_docstrings.py

experiments: .venv/tests
	MAKEFLAGS= $(BIN)/pytest -s -m experiments tests/test_experiments.py  # it starts make itself

docs: html examples

html: .venv/tests
	PYDEVD_DISABLE_FILE_VALIDATION=1 $(BIN)/python -m sphinx -q -W --keep-going -b html -d docs/build/doctrees docs docs/build/html
	$(BIN)/pytest -q -m site tests/docs

examples: .venv/tests
	$(PYTEST) $(SHARED) -m examples tests/docs

# What training needs
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -c constraints.txt -e .
	touch $@

# What tests, linters and the documentation need too; Python compiles the modules that it imports
.venv/tests: pyproject.toml constraints.txt
	test -d .venv || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --no-compile -c constraints.txt -e '.[dev]'
	touch .venv/installed $@

# An environment with other versions of Hydra and OmegaConf, on top of the first one
.venv/hydra-1.4/installed: .venv/tests tests/hydra-1.4.txt
	$(PYTHON) -m venv .venv/hydra-1.4
	$(BIN)/python -c "import site; print(*site.getsitepackages())" > \
	    $$(.venv/hydra-1.4/bin/python -c "import site; print(*site.getsitepackages())")/packages.pth
	.venv/hydra-1.4/bin/pip install --quiet --no-deps -e . -r tests/hydra-1.4.txt
	touch $@
