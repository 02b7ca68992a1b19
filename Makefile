# Two commands for a fresh machine: `make demo` and `make test`. They need make and Python 3.11 or newer.
SHELL := /bin/bash
# The newest supported Python that works: a name on the path may be a launcher with nothing behind it.
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHONS := python3.13 python3.12 python3.11 python3 $(wildcard $(HOME)/.pyenv/versions/3.1[123].*/bin/python)
PYTHON ?= $(shell for p in $(PYTHONS); do "$$p" -c '$(SUPPORTED)' 2>/dev/null && command -v "$$p" && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
# Keep compiled programs between runs: a second run of the tests compiles almost nothing.
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.cache/jax
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0
export JAX_PLATFORMS ?= cpu

.PHONY: help setup demo test quick test-all test-pythons lint bench tables docs clean
help:
	@echo "make setup     create .venv with everything the tests need"
	@echo "make demo      train the paper's network by several methods and paint a portrait: see demo-out/"
	@echo "make lint      check rules, format and types"
	@echo "make test      lint, then run all tests except the slow ones"
	@echo "make test-all  lint, then run all tests, the slow proofs included"
	@echo "make test-pythons  run the quick tests on every supported Python that is found"
	@echo "make bench     measure speed and memory beside peers (installs PyTorch)"
	@echo "make tables    measure the tables of the documentation again (about ten minutes)"
	@echo "make docs      build the documentation in docs/_build/html"
	@echo "make clean     remove everything that make created"

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt CMakeLists.txt $(wildcard src/entroplay/base/native/*)
	@test -n "$(PYTHON)" || { echo "No Python 3.11, 3.12 or 3.13 found. Install one, or set PYTHON=/path/to/python."; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "entroplay needs Python 3.11 or newer; $(PYTHON) is %d.%d. Set PYTHON=/path/to/python." % sys.version_info[:2])'
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) lacks the venv module (Debian: apt-get install python3-venv)."; exit 1; }
	@echo "Setting up $(VENV) with $(PYTHON) ($$("$(PYTHON)" --version))"
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
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

# Most of the time goes into compiling many small programs once, so the compiler's optimisation is
# switched off here, and its older code generator, which compiles twice as fast, is chosen.
# `make test-all` keeps the defaults.
QUICK_COMPILATION := --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true \
	--xla_cpu_use_fusion_emitters=false
test: lint quick

quick: setup
	XLA_FLAGS="$(QUICK_COMPILATION) $$XLA_FLAGS" $(BIN)/python -m pytest -n 2 --dist worksteal

# The quick tests on every supported Python that is found, each in an environment of its own.
test-pythons:
	@for p in $(PYTHONS); do "$$p" -c '$(SUPPORTED)' 2>/dev/null && \
	  "$$p" -c 'import sys; print("%d.%d" % sys.version_info[:2], sys.executable)'; done | sort -u -k1,1 | \
	while read -r version path; do \
	  echo "Python $$version: $$path"; \
	  $(MAKE) quick VENV=.venv-$$version PYTHON="$$path" < /dev/null || exit 1; \
	done

# Kernel thinning is distributed as source. Compiling it needs Python's headers.
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
	$(BIN)/python benchmarks/cold.py
	$(BIN)/python benchmarks/bounds.py

# The tables of the documentation, measured again.
tables: setup $(VENV)/.compress
	$(BIN)/python docs/scripts/entropy_bias.py
	$(BIN)/python docs/scripts/smaller_network.py
	$(BIN)/python docs/scripts/choosing.py
	$(BIN)/python docs/scripts/cold.py

docs: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]" --no-build-isolation
	$(BIN)/sphinx-build -W -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

clean:
	rm -rf $(VENV) .venv-3.* build dist .cache .pytest_cache .ruff_cache .hypothesis demo-out bench-out docs/_build
