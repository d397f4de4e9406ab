# Every target sets up .venv first if it is missing; only python3 and make are needed.
.PHONY: help venv demo test test-all lint bench constraints
PY = .venv/bin/python
WORKERS ?= 2

help:
	@echo 'make demo      one headline of each paper in minutes, a sentence each and a page'
	@echo 'make test      lint and the test suite'
	@echo 'make test-all  the suite with the long checks'
	@echo 'make bench     the benchmarks (tables with CPU seconds)'

venv:
	@sh .ci/venv

demo: venv
	@$(PY) experiments/demo.py

test: venv lint
	@$(PY) -m pytest -n $(WORKERS) --dist loadfile -m 'not slow'

test-all: venv
	@JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(PY) -m pytest -n $(WORKERS) --dist loadfile

lint: venv
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m basedpyright --level error

bench: venv
	@for script in benchmarks/*.py; do echo "== $$script"; $(PY) $$script || exit 1; done

constraints: venv
	@$(PY) -m pip install --quiet uv
	@$(PY) -m uv pip compile --quiet --universal --python-version 3.11 --no-header --extra data --extra dev pyproject.toml -o constraints.txt
