"""lit's configuration: `lit -sv test/lit` from the repository's root."""

# `config` and `lit_config` are put here by lit.
# ruff: noqa: F821
import os
import sys
from pathlib import Path

import lit.formats

config.name = "covan"
# The internal shell: it is faster than bash and has `not`, which MLIR's tests use.
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = {".mlir"}
config.excludes = {"Inputs"}
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(os.path.dirname(os.path.dirname(config.test_source_root)), "build", "lit")

# Schedules for this machine must not depend on how busy it was when it was measured.
config.environment["COVAN_MACHINE"] = "avx512"
config.environment["COVAN_CACHE"] = "off"

# The tools stand beside the Python that runs lit, whether or not its environment is activated.
_bin = Path(sys.executable).parent
_tools = {
    "covan-opt": "covan-opt",
    "FileCheck": "filecheck",
    "iree-opt": "iree-opt",
    "torch-mlir-opt": "torch-mlir-opt",
}
config.substitutions.append(("%segments", f"{sys.executable} {Path(config.test_source_root) / 'segments.py'}"))
# Whole words only, and not where a path holds the tool's name.
config.substitutions += [(rf"(?<![\w/.-]){n}(?![\w/.-])", str(_bin / file)) for n, file in _tools.items()]
