# Every target sets up .venv first if it is missing; only python3 and make are needed.
.PHONY: help venv demo test suite test-all test-hostile test-slurm test-newest lint bench gpu-day docs constraints
PY = .venv/bin/python
WORKERS ?= 2
# Python caches bytecode: without it every process compiles JAX again, in six CPU seconds.
export PYTHONDONTWRITEBYTECODE =

help:
	@echo 'make demo      one result of each paper within minutes, and a page of them'
	@echo 'make test      lint and the test suite'
	@echo 'make test-all  the suite with the long checks'
	@echo 'make test-hostile  kills, damage, full disks and bad input, under 20 minutes'
	@echo 'make test-newest  the suite on the newest Python and packages that pyproject.toml allows'
	@echo 'make test-slurm  the tests with a private Slurm on this machine (apt-get install slurm-wlm munge)'
	@echo 'make bench     the benchmarks (tables with CPU seconds)'
	@echo 'make gpu-day   measurements on a GPU, MINUTES=15, the most valuable first'
	@echo 'make docs      the pages of docs/ and the API as a site, in build/docs'

venv:
	@sh .ci/venv

demo: venv
	@$(PY) experiments/demo.py

# The checks of types run beside the tests, so that no core is idle.
test: venv
	@$(MAKE) --no-print-directory --jobs=2 lint suite

suite: venv
	@$(PY) -m pytest -n $(WORKERS) --dist loadfile -m 'not slow and not hostile'

test-all: venv
	@JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(PY) -m pytest -n $(WORKERS) --dist loadfile -m 'not hostile'

# Others draw with HOSTILE_SEED=N make test-hostile.
test-hostile: venv
	@echo "HOSTILE_SEED=$${HOSTILE_SEED:-0}"
	@$(PY) -m pytest -n 2 --dist load --maxschedchunk 1 -m hostile tests/hostile

test-newest: venv
	@.ci/newest all

# Needs Debian's slurm-wlm and munge, and pip install -e '.[slurm]'; runs as any user. The daemons
# and their files live in a temporary folder and end with the tests.
test-slurm: venv
	@$(PY) -m pytest -m slow tests/slurm

lint: venv
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m basedpyright --level error

bench: venv
	@for script in $(filter-out %/gpu_day.py %/forecast.py,$(wildcard benchmarks/*.py)); do echo "== $$script"; $(PY) $$script || exit 1; done

# Needs a GPU and pip install -e '.[cuda13]' (cuda12 for older drivers); DRY=--dry-run tries the stages on a CPU.
MINUTES ?= 15
gpu-day: venv
	@$(PY) benchmarks/gpu_day.py --minutes=$(MINUTES) $(DRY)

# Sphinx comes with the extra `docs`; the site needs no network.
docs: venv
	@$(PY) -c 'import furo, myst_parser, sphinx' 2>/dev/null \
	  || $(PY) -m pip install --quiet --constraint constraints.txt --editable '.[docs]' \
	  || { echo 'the site needs the extra [docs], which pip cannot install here'; exit 1; }
	@$(PY) docs/generate.py
	@$(PY) -m sphinx -q -W --keep-going -b html docs build/docs
	@echo 'open build/docs/index.html'

# Pins of every extra but those for accelerators; pins that still fit stay as they are.
EXTRAS = data prepare hf slurm track diagnostics docs dev
constraints: venv
	@$(PY) -m pip install --quiet uv
	@$(PY) -m uv pip compile --quiet --universal --python-version 3.11 --no-header $(EXTRAS:%=--extra %) pyproject.toml -o constraints.txt
