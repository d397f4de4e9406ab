# Every target sets up .venv first if it is missing; only python3 and make are needed.
.PHONY: help venv demo test test-all lint bench constraints
PY = .venv/bin/python
WORKERS ?= 2

help:
	@echo 'make demo      train four transformers with different parts frozen; print what each can do'
	@echo 'make test      lint and the test suite'
	@echo 'make test-all  the suite with the long checks'
	@echo 'make bench     the benchmarks (tables with CPU seconds)'

venv:
	@sh .ci/venv

DEMO = runs/demo
demo: venv
	@for variant in standard frozen_mlp frozen_qk mixit; do \
	  $(PY) experiments/run.py --config=configs/mixit/retrieval.py:variant=$$variant,scale=tiny \
	    --workdir=$(DEMO)/$$variant || exit 1; done
	@$(PY) experiments/compare.py $(DEMO)/standard $(DEMO)/frozen_mlp $(DEMO)/frozen_qk \
	  $(DEMO)/mixit --plot=$(DEMO)/compare.png
	@echo 'Look at $(DEMO)/compare.png; every run is a folder in $(DEMO). README.md says what comes next.'

test: venv
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m pytest -n $(WORKERS) --dist loadfile -m 'not slow'

test-all: venv
	@$(PY) -m pytest -n $(WORKERS) --dist loadfile

lint: venv
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m pyright

bench: venv
	@for script in benchmarks/*.py; do echo "== $$script"; $(PY) $$script || exit 1; done

constraints: venv
	@$(PY) -m pip install --quiet uv
	@$(PY) -m uv pip compile --quiet --universal --python-version 3.11 --no-header --extra data --extra hf --extra dev pyproject.toml -o constraints.txt
