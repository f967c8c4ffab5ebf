# Two commands do everything: `make demo` and `make test`. Both set up .venv first; again only when pins change.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
FILES := $(VENV)/.files
PEERS := $(VENV)/.peers
# Only files whose hashes are in supply/locks are installed, and none that would have to be built; nothing is resolved.
INSTALL := $(BIN)/python -m pip install -q --disable-pip-version-check --no-deps
LOCKED := $(INSTALL) --require-hashes --only-binary :all:
LOCKS := supply/locks
ROOMS := python dialects passes lowering runtime tools examples bench supply test

# Folders that pyproject.toml makes one package of; the tests that `make quick` runs.
PACKAGE := python dialects passes lowering runtime tools
QUICK := test/quick.txt
# Tests run beside each other, one process a core, each with a compiler of its own: two GiB of memory each.
JOBS ?= auto
PYTEST := $(BIN)/python -m pytest -q -rs -n $(JOBS) --maxprocesses 4 --dist worksteal

.PHONY: help setup demo test quick sweep lint format lit pytest vulkan chromium bench audit lock clean files

help:
	@echo "make demo    compile two models, compare with eager, print the kernel <-> source tables"
	@echo "make test    ruff, mypy, import-linter, lit, pytest"
	@echo "make lint    ruff, mypy, import-linter   make format  let ruff rewrite the files"
	@echo "make bench   the benchmarks of docs/benchmarks.md"
	@echo "make quick   lint, lit, and the tests listed in $(QUICK): a line for each room, add one with a new room"
	@echo "make sweep   pytest with what is like something that make test runs, too: another half hour"
	@echo "make audit   ask for known vulnerabilities of all pinned packages   make lock  pins and hashes anew"
	@echo "make clean   remove .venv and everything built"

setup: $(STAMP) $(FILES)

# One venv of locked packages; the project itself is editable, so sources need no reinstall. torch's CPU build is taken
# where it can be had; the build that every index has is gigabytes with CUDA's libraries.
$(STAMP): pyproject.toml $(addprefix $(LOCKS)/,runtime.txt develop.txt torch_cpu.txt torch_cuda.txt) CMakeLists.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "covan needs Python >= 3.11; set PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (a few minutes the first time)"
	@$(LOCKED) -r $(LOCKS)/torch_cpu.txt 2>pip.log || \
		{ tail -1 pip.log; echo "no CPU build of torch can be had here: taking the other, with CUDA's libraries"; }
	@$(LOCKED) -r $(LOCKS)/runtime.txt -r $(LOCKS)/develop.txt 2>pip.log || { cat pip.log; exit 1; }
	@build=$$($(BIN)/python supply/torch_build.py) && { test $$build = cpu || \
		$(LOCKED) -r $(LOCKS)/torch_cuda.txt 2>pip.log; } || { cat pip.log; exit 1; }
	@$(INSTALL) --no-build-isolation -e . 2>pip.log || { cat pip.log; exit 1; }
	@rm -f pip.log
	@$(LIST_FILES) >$(FILES)
	@touch $(STAMP)

# The editable install holds a list of the package's files: when that changes, it is made anew, in seconds.
LIST_FILES := find $(PACKAGE) -name __pycache__ -prune -o -type f -print | LC_ALL=C sort
$(FILES): files $(STAMP)
	@$(LIST_FILES) | cmp -s - $(FILES) || { \
		$(INSTALL) --no-build-isolation -e . 2>pip.log || { cat pip.log; exit 1; }; \
		rm -f pip.log; $(LIST_FILES) >$(FILES); }

# ONNX Runtime and OpenVINO, which are only measured against.
$(PEERS): $(STAMP) $(LOCKS)/bench.txt
	@$(LOCKED) -r $(LOCKS)/bench.txt 2>pip.log || { cat pip.log; exit 1; }
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

# Known vulnerabilities fail; having no network, which is told, does not.
audit: setup
	@$(BIN)/python supply/audit.py

# After a change of constraints.txt or of requirements in pyproject.toml.
lock: setup
	@$(LOCKED) -r $(LOCKS)/locking.txt
	@$(BIN)/python supply/write_locks.py

clean:
	rm -rf $(VENV) build dist pip.log apt.log .mypy_cache .ruff_cache .pytest_cache .hypothesis
