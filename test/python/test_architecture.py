"""The arrows between rooms are contracts in pyproject.toml; each is broken here once on purpose, and then says so."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS: Mapping[str, str] = {
    contract["name"]: contract["type"]
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
}
# By contract: a file of the package, and an import in it that is forbidden; inside of functions and for types, too.
FORBIDDEN: Mapping[str, tuple[str, str]] = {
    "Rooms are layers": (
        "provenance/words.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from covan_mlir.frontend import dtypes",
    ),
    "No file imports itself by way of others": (
        "fred/obligation.py",
        "def late() -> None:\n    from covan_mlir.fred import proving",
    ),
    "Facades are at the top": (
        "comparing/source.py",
        "def late() -> None:\n    from covan_mlir.executable import Executable",
    ),
    "What runs a program knows no compiler": ("runtime/values.py", "from covan_mlir.passes import registry"),
    "Passes know nothing of lowering": ("passes/framework/patterns.py", "import covan_mlir.lowering.messages"),
    "Theories stand alone": ("prov/system.py", "from covan_mlir.fred.expression import Expr"),
    "What proves a rule knows nothing of what made it": (
        "subst/inference.py",
        "from covan_mlir.subst.families import TASO",
    ),
    "A lineage's data knows nothing of what is made of it": (
        "provenance/model.py",
        "def late() -> None:\n    from covan_mlir.provenance.explain import table",
    ),
    "A profile's data knows nothing of what is made of it": (
        "profiling/views.py",
        "def late() -> None:\n    from covan_mlir.profiling.text import table",
    ),
    "The checker is no maker": ("checking/verdict.py", "from covan_mlir.provenance.relation import relate"),
    "What checks substitutions knows nothing of what makes them": (
        "checking/verdict.py",
        "from covan_mlir.subst.matching import Matcher",
    ),
    "Frontends that translate know nothing of each other": (
        "frontend/onnx/nodes.py",
        "from covan_mlir.frontend.stablehlo import program",
    ),
    "CUDA and Vulkan know nothing of each other": (
        "lowering/kernels/vulkan/__init__.py",
        "import covan_mlir.lowering.kernels.cuda",
    ),
    "Templates are known to the registry alone": (
        "lowering/pipeline.py",
        "import covan_mlir.lowering.kernels.cpu.templates",
    ),
}


@pytest.fixture(scope="module")
def layout() -> ModuleType:
    spec = importlib.util.spec_from_file_location("layout", ROOT / "test" / "layout.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def broken(layout: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[str]]:
    """The contracts that are broken with each of the imports; by an empty name those of the package as it is."""
    folder = tmp_path_factory.mktemp("architecture")
    layout.lay_out(folder / "0", copy=True)
    templates = folder / "0" / "covan_mlir" / "lowering" / "kernels" / "cpu" / "templates"
    templates.mkdir(exist_ok=True)
    (templates / "__init__.py").touch()
    trees = [folder / "0"]
    for number, (file, forbidden) in enumerate(FORBIDDEN.values(), start=1):
        tree = shutil.copytree(folder / "0", folder / str(number))
        path = tree / "covan_mlir" / file
        path.write_text(f"{path.read_text()}\n{forbidden}\n")
        trees.append(tree)
    command = [sys.executable, str(ROOT / "test" / "contracts.py"), *map(str, trees)]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    return dict(zip(("", *FORBIDDEN), json.loads(told.stdout), strict=True))


def test_contracts_hold(broken: Mapping[str, list[str]]) -> None:
    assert broken[""] == []


def test_each_contract_is_broken_below() -> None:
    assert FORBIDDEN.keys() == CONTRACTS.keys()


@pytest.mark.parametrize("contract", FORBIDDEN)
def test_breaking_a_contract_is_told(contract: str, broken: Mapping[str, list[str]]) -> None:
    assert contract in broken[contract]
    assert contract not in broken[""]
