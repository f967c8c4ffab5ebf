"""Check the architecture: the contracts of ``[tool.importlinter]`` in pyproject.toml, over all imports of the package.

Imports inside of functions and under ``TYPE_CHECKING`` count as others do. With arguments, check the packages laid out
in these folders instead of the checkout, and print the names of the contracts that are broken in each, as JSON.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from pathlib import Path

import networkx
from grimp import ImportGraph
from importlinter import Contract, ContractCheck, configuration, output
from importlinter.application import rendering, use_cases
from importlinter.application.ports.reporting import Report
from layout import ROOT, lay_out


class AcyclicFiles(Contract):
    """No file imports itself by way of others."""

    type_name = "acyclic_files"

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Metadata: ``circles``, lists of modules."""
        arrows = networkx.DiGraph(
            (module, imported)
            for module in graph.modules
            for imported in graph.find_modules_directly_imported_by(module)
        )
        circles = [sorted(part) for part in networkx.strongly_connected_components(arrows) if len(part) > 1]
        return ContractCheck(kept=not circles, metadata={"circles": sorted(circles)})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print the circles."""
        for circle in check.metadata["circles"]:
            output.print_error(f"{len(circle)} files import each other in circles: {', '.join(circle)}")


def report_on(tree: Path) -> Report:
    """Check the package in a folder."""
    # An editable install's own finder goes before the path.
    sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("_editable")]
    sys.path.insert(0, str(tree))
    importlib.invalidate_caches()
    try:
        options = use_cases.read_user_options(str(ROOT / "pyproject.toml"))
        use_cases._register_contract_types(options)
        return use_cases.create_report(options, cache_dir=None)
    finally:
        sys.path.remove(str(tree))


def broken(tree: Path) -> list[str]:
    """Names of the contracts that the package in a folder breaks."""
    return [contract.name for contract, check in report_on(tree).get_contracts_and_checks() if not check.kept]


def main(trees: list[str]) -> int:
    """Exit status: whether the checkout keeps all contracts."""
    configuration.configure()
    if trees:
        print(json.dumps([broken(Path(tree)) for tree in trees]))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        lay_out(Path(folder))
        report = report_on(Path(folder))
    rendering.render_report(report)
    return int(report.contains_failures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
