# Two commands: `make build RECIPE=cpu.yaml` and `make test`. Each makes .venv first if it is not there or is out of date.

PYTHON ?= python3.11
RECIPE ?= cpu.yaml
ARGS ?=
JOBS ?= 2

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed-$(shell cksum < requirements.lock | tr ' ' '-')
OURS := $(wildcard build.py compiler runtime_lite examples benchmarks tests)

.PHONY: build test test-slow lint format lock clean

build: $(STAMP)
	@$(BIN)/python build.py --recipe $(RECIPE) $(ARGS)

test: lint
	@$(BIN)/python -m pytest -n $(JOBS)

test-slow: $(STAMP)
	@$(BIN)/python -m pytest -n $(JOBS) -m slow

lint: $(STAMP)
	@$(BIN)/ruff format --check $(OURS)
	@$(BIN)/ruff check $(OURS)
	@$(BIN)/mypy $(OURS)

format: $(STAMP)
	@$(BIN)/ruff format $(OURS)
	@$(BIN)/ruff check --fix $(OURS)

# The stamp names the lock's checksum: a changed lock installs again, an unchanged one needs no network.
$(STAMP):
	@command -v $(PYTHON) > /dev/null || { \
	  echo "make: expected Python 3.11 as '$(PYTHON)', got none; install it, or name it: make PYTHON=/path/to/python3.11" >&2; \
	  exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { \
	  echo "make: expected Python 3.11, got $$($(PYTHON) --version) from '$(PYTHON)'; name another: make PYTHON=/path/to/python3.11" >&2; \
	  exit 2; }
	@rm -f $(VENV)/installed-*
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement requirements.lock
	@! grep -q "^cuda.*= '" $(VENV)/lib/python3.11/site-packages/torch/version.py || { \
	  echo "make: expected the CPU build of torch, got one for CUDA; set PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL to where" >&2; \
	  echo "      your CPU wheels are, remove $(VENV), and run make again" >&2; \
	  exit 2; }
	@touch $@

# Run in a .venv that holds what pyproject.toml asks for.
lock:
	@{ sed -n 1p requirements.lock; echo torch==2.13.0; \
	   $(BIN)/python -m pip freeze --all | grep -viE '^(torch|pip|wheel|openvino-telemetry)=='; } > requirements.lock.new
	@mv requirements.lock.new requirements.lock

clean:
	rm -rf dist .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
