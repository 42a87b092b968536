# `make build RECIPE=cpu.yaml`, `make test` and `make wheels`. Each makes .venv first if it is not there or is out of date.

PYTHON ?= python3.11
RECIPE ?= cpu.yaml
ARGS ?=
JOBS ?= 2
WHEELS ?= dist/wheels

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed-$(shell cksum < requirements.lock | tr ' ' '-')
OURS := $(wildcard build.py compiler runtime_lite examples benchmarks tests)

.PHONY: build test quick test-slow wheels lint format lock clean

build: $(STAMP)
	@$(BIN)/python build.py --recipe $(RECIPE) $(ARGS)

test: lint
	@$(BIN)/python -m pytest -n $(JOBS)

# The tests that stand nearest to what changed since a commit, for a minute.
quick: lint
	@$(BIN)/python -m tests.quick $(ARGS)

test-slow: $(STAMP)
	@$(BIN)/python -m pytest -n $(JOBS) -m slow

# From a copy: setuptools leaves folders beside what it builds, and would put removed files of an earlier build into a wheel.
# A date of its own makes equal sources equal wheels.
wheels: $(STAMP)
	@copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && \
	cp -RL compiler runtime_lite distributions pyproject.toml README.md LICENSE "$$copy" && \
	rm -f $(WHEELS)/slipway_*.whl && \
	SOURCE_DATE_EPOCH=1600000000 $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-index --no-deps \
	  --no-build-isolation --wheel-dir $(WHEELS) "$$copy/distributions/runtime" "$$copy"
	@ls $(WHEELS)/slipway_*.whl

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
	   $(BIN)/python -m pip freeze --all --exclude-editable | grep -viE '^(torch|pip|wheel|openvino-telemetry)=='; } > requirements.lock.new
	@mv requirements.lock.new requirements.lock

clean:
	rm -rf dist .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
