# Two commands do everything: `make demo` and `make test`. Both set up .venv first; again only when pins change.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
FILES := $(VENV)/.files
PEERS := $(VENV)/.peers
ROOMS := python dialects passes lowering runtime tools examples bench test

# Folders that pyproject.toml makes one package of; the tests that `make quick` runs.
PACKAGE := python dialects passes lowering runtime tools
QUICK := test/quick.txt
# Tests run beside each other, one process a core, each with a compiler of its own: two GiB of memory each.
JOBS ?= auto
PYTEST := $(BIN)/python -m pytest -q -rs -n $(JOBS) --maxprocesses 4 --dist worksteal

.PHONY: help setup demo test quick sweep lint format lit pytest vulkan chromium bench clean files

help:
	@echo "make demo    compile two models, compare with eager, print the kernel <-> source tables"
	@echo "make test    ruff, mypy, import-linter, lit, pytest"
	@echo "make lint    ruff, mypy, import-linter   make format  let ruff rewrite the files"
	@echo "make bench   the benchmarks of docs/benchmarks.md"
	@echo "make quick   lint, lit, and the tests listed in $(QUICK): a line for each room, add one with a new room"
	@echo "make sweep   pytest with what is like something that make test runs, too: another half hour"
	@echo "make clean   remove .venv and everything built"

setup: $(STAMP) $(FILES)

# One venv, pinned by constraints.txt; the project itself is editable, so sources need no reinstall.
$(STAMP): pyproject.toml constraints.txt CMakeLists.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "covan needs Python >= 3.11; set PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (a few minutes the first time)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt scikit-build-core 2>pip.log || { cat pip.log; exit 1; }
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[test,cuda]' 2>pip.log || { cat pip.log; exit 1; }
	@rm -f pip.log
	@$(LIST_FILES) >$(FILES)
	@touch $(STAMP)

# The editable install holds a list of the package's files: when that changes, it is made anew, in seconds.
LIST_FILES := find $(PACKAGE) -name __pycache__ -prune -o -type f -print | LC_ALL=C sort
$(FILES): files $(STAMP)
	@$(LIST_FILES) | cmp -s - $(FILES) || { \
		$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e . 2>pip.log || { cat pip.log; exit 1; }; \
		rm -f pip.log; $(LIST_FILES) >$(FILES); }

# ONNX Runtime and OpenVINO, which are only measured against.
$(PEERS): $(STAMP)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[bench]' 2>pip.log || { cat pip.log; exit 1; }
	@rm -f pip.log
	@touch $(PEERS)

demo: setup
	@$(BIN)/python examples/demo.py

test: lint lit pytest

quick: lint lit
	$(PYTEST) $$(sed 's/ *#.*//' $(QUICK))

lint: setup
	$(BIN)/ruff format --check $(ROOMS)
	$(BIN)/ruff check $(ROOMS)
	$(BIN)/python test/typecheck.py
	$(BIN)/python test/contracts.py

format: setup
	$(BIN)/ruff format $(ROOMS)
	$(BIN)/ruff check --fix $(ROOMS)

lit: setup
	$(BIN)/lit -sv test/lit

# What is skipped, and why, is told at the end.
pytest: setup vulkan chromium
	$(PYTEST) --durations=25 test/python

sweep: setup vulkan chromium
	COVAN_SWEEP=1 COVAN_TEST_LARGE=1 $(PYTEST) --durations=25 test/python

vulkan:
	@test/vulkan_driver.sh

chromium:
	@test/chromium.sh

bench: setup $(PEERS)
	$(BIN)/python bench/compile_overhead.py
	$(BIN)/python bench/models.py
	$(BIN)/python bench/dense.py

clean:
	rm -rf $(VENV) build dist pip.log apt.log .mypy_cache .ruff_cache .pytest_cache .hypothesis
