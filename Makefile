# Everything from a fresh clone with Python >= 3.10 and make; all that is installed goes into .venv.
#   make demo   rewrite a training script, show the diff, run both for a few steps
#   make test   all tests; AUTOFAST_TESTS=all tries every fixture in every way, every seeded fault and every long case of verify, PARITY_SEEDS=30 more seeds
#   make bench  ten training scripts as written, rewritten and tuned by hand: what a step asks of a GPU, and its time here
#   make lint   ruff and mypy
#   make docs   the documentation as a site, in site/

PYTHON ?= python3
VENV ?= .venv
# Tests compare numbers, so they know their torch exactly. `make test TORCH=torch==2.9.0` tries another.
TORCH ?= torch==2.13.0
# Processes for the tests: one for each core. Each may take a gigabyte.
JOBS ?= $(shell $(PYTHON) -c 'import os; print(max(2, min(8, os.cpu_count() or 2)))')
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test bench lint docs venv clean

demo: $(READY)
	@$(BIN)/python benchmarks/demo.py

# Byte code is kept: hundreds of processes import the same modules.
test: $(READY)
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup

bench: $(READY)
	$(BIN)/python -m benchmarks.speed --write
	$(BIN)/python -m benchmarks.speed --measure --write

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

venv: $(READY)

$(READY): pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "autofast needs Python 3.10 or newer; name one: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "this Python has no working venv module (on Debian: apt install python3-venv)"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[dev]'
	@echo "$(BIN)/python -m pip install $(TORCH)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile '$(TORCH)' || { \
		echo "no $(TORCH) for this Python and platform on your package index."; \
		echo "Point pip at one that has it (PIP_EXTRA_INDEX_URL=...; PyTorch's own CPU index saves the CUDA libraries),"; \
		echo "or try another release: make $(MAKECMDGOALS) TORCH=torch"; exit 1; }
	@# Byte code by all cores: pip would use one, for half a minute. (Templates in packages are no Python.)
	@$(BIN)/python -m compileall -q -j $(JOBS) $(VENV)/lib >/dev/null || true
	@touch $@

clean:
	rm -rf $(VENV) build dist site *.egg-info
