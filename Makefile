# Two commands on a fresh machine: `make demo` and `make test`. They need python3.11 or newer, and make.
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do command -v $$p && break; done | head -n 1)
VENV := .venv
BIN := $(VENV)/bin
# Compiled programs are kept between runs; a second run of the tests compiles almost nothing.
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.cache/jax
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0
export JAX_PLATFORMS ?= cpu

.PHONY: help setup demo test test-all lint bench tables docs clean
help:
	@echo "make setup     .venv with everything the tests need"
	@echo "make demo      the paper's network by several methods, and a portrait in triangles: see demo-out/"
	@echo "make test      lint, types and all tests but the slow ones"
	@echo "make test-all  the slow proofs too"
	@echo "make bench     speed and memory, side by side with peers (installs PyTorch)"
	@echo "make tables    the documentation's tables, measured anew (some ten minutes)"
	@echo "make docs      the documentation, in docs/_build/html"
	@echo "make clean     remove what make made"

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt CMakeLists.txt $(wildcard src/entroplay/base/native/*)
	@test -n "$(PYTHON)" || { echo "No python3 found. Install Python 3.11 or newer, or set PYTHON=/path/to/python."; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "entroplay needs Python 3.11 or newer; $(PYTHON) is %d.%d. Set PYTHON=/path/to/python." % sys.version_info[:2])'
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) lacks the venv module (Debian: apt-get install python3-venv)."; exit 1; }
	test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt scikit-build-core jaxlib ninja cmake
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e ".[dev]"
	@touch $@

demo: setup
	$(BIN)/entroplay demo --out demo-out
	$(BIN)/entroplay paint --triangles 300 --size 128 --iterations 800 --out demo-out/astronaut.png --out demo-out/astronaut.gif --render-size 512

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

# Most of the time goes into compiling many small programs once: the compiler's own optimisation is left out here. `make test-all`
# keeps it.
QUICK_COMPILATION := --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true
test: lint
	XLA_FLAGS="$(QUICK_COMPILATION) $$XLA_FLAGS" $(BIN)/python -m pytest -n 2 --dist worksteal

# Kernel thinning comes as source and is compiled here, which also needs Python's headers.
$(VENV)/.compress: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt goodpoints
	@touch $@

test-all: lint $(VENV)/.compress
	$(BIN)/python -m pytest -n 2 --dist worksteal -m ""

bench: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[bench]" --no-build-isolation
	$(BIN)/python benchmarks/langevin_step.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/newton.py
	$(BIN)/python benchmarks/raster.py
	$(BIN)/python benchmarks/mixing.py
	$(BIN)/python benchmarks/neurons.py
	$(BIN)/python benchmarks/estimators.py

# The tables of the documentation, measured anew.
tables: setup $(VENV)/.compress
	$(BIN)/python docs/scripts/entropy_bias.py
	$(BIN)/python docs/scripts/smaller_network.py
	$(BIN)/python docs/scripts/choosing.py

docs: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]" --no-build-isolation
	$(BIN)/sphinx-build -W -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

clean:
	rm -rf $(VENV) build dist .cache .pytest_cache .ruff_cache .hypothesis demo-out bench-out docs/_build
