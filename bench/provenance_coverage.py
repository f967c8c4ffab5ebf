"""How many calls of the exported graph can be tied to kernels: covan's lineage beside TorchInductor's own tracking.

    python bench/provenance_coverage.py [--json FILE] [MODEL ...]

Both are given the same `torch.export` graph, and the same nodes are counted: its call nodes. TorchInductor
(``trace.provenance_tracking_level``) maps nodes of the graph it is given to nodes after its passes, and those to
kernels (``inductor_provenance_tracking_node_mappings.json``): a node is tied if there is a way. Of covan a node is
tied if its fate names sites: they compute it, index by it, or read its constant. A node that nobody needs is tied to
nothing, rightly; its fate says so. *Computing* nodes are those that the results need and that are no views by their
schema.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test" / "python"))

import torch
import zoo
from rich.console import Console
from rich.table import Table
from torch._inductor import compile_fx, config, debug, graph
from torch.export import ExportedProgram

import covan_mlir

MODELS = ("gpt2-sdpa", "vit-sdpa", "resnet", "convnext", "bert-sdpa", "llama-sdpa", "mobilenet")


class _Enough(Exception):
    """Code is generated, and the mapping with it: there is no need to compile the C++."""


@contextmanager
def _mappings() -> Iterator[dict[str, dict[str, list[str]]]]:
    """What TorchInductor would write to inductor_provenance_tracking_node_mappings.json."""
    mappings: dict[str, dict[str, list[str]]] = {}

    def stop(lowering: Any) -> Any:
        lowering.codegen()
        mappings.update({k: v for k, v in debug.dump_inductor_provenance_info().items() if isinstance(v, dict)})
        raise _Enough

    tracked = config.patch({"trace.provenance_tracking_level": 1, "force_disable_caches": True})
    with mock.patch.object(graph.GraphLowering, "compile_to_module", stop), tracked, torch.no_grad():
        yield mappings


def inductor(program: ExportedProgram) -> set[str]:
    """Names of the exported graph's call nodes that TorchInductor ties to a kernel."""
    module = program.module(check_guards=False)
    assert isinstance(module, torch.fx.GraphModule)
    args, kwargs = program.example_inputs
    flat = [t for t in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    module.graph.set_codegen(torch.fx.graph.CodeGen())  # flat arguments and results, as compilers take them
    output = module.graph.output_node()
    output.args = (tuple(output.all_input_nodes),)
    module.recompile()
    with _mappings() as mappings:
        try:
            compile_fx.compile_fx(module, flat)
        except Exception as error:
            if not mappings:
                raise RuntimeError(f"TorchInductor refuses the model: {error}") from error
    kernels = mappings.get("postToCppCode", {})
    return {name for name, posts in mappings.get("preToPost", {}).items() if any(kernels.get(post) for post in posts)}


def count(name: str) -> dict[str, Any]:
    module, args, kwargs = zoo.build(name)
    program = torch.export.export(module, args, kwargs, strict=False)
    lineage = covan_mlir.compile_module(program).lineage
    assert lineage is not None
    tied = inductor(torch.export.export(module, args, kwargs, strict=False))
    computing = {action.id for action in lineage.actions if action.live and not action.view}
    ours = {action.id for action, fate in zip(lineage.actions, lineage.fates, strict=True) if fate.sites}
    theirs = {action.id for action in lineage.actions if action.name in tied}
    return {
        "model": name,
        "nodes": len(lineage.actions),
        "live": sum(action.live for action in lineage.actions),
        "computing": len(computing),
        "inductor": len(theirs),
        "inductor_computing": len(theirs & computing),
        "covan": len(ours),
        "covan_computing": len(ours & computing),
        "fates": len(lineage.fates),
        "fate_kinds": dict(Counter(fate.kind for fate in lineage.fates)),
        "inductor_loses": sorted(lineage.actions[i].name for i in computing - theirs),
        "covan_loses": sorted(lineage.actions[i].name for i in computing - ours),
        "covan_unplaced": {
            action.name: fate.kind
            for action, fate in zip(lineage.actions, lineage.fates, strict=True)
            if not fate.sites and fate.kind != "dead"
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Share of the exported graph's calls tied to kernels.")
    parser.add_argument("models", nargs="*", default=MODELS, help=f"of the tests' zoo (default: {' '.join(MODELS)})")
    parser.add_argument("--json", type=Path, help="write all that was counted there")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)  # TorchInductor reports the exception that stops it
    table = Table(
        "model",
        "call nodes",
        "Inductor: kernel",
        "covan: kernel",
        "covan: kernel or fate",
        "computing nodes",
        "Inductor: kernel",
        "covan: kernel",
        box=None,
    )
    rows = []
    for name in options.models:
        row = count(name)
        rows.append(row)
        keys = ("nodes", "inductor", "covan", "fates", "computing", "inductor_computing", "covan_computing")
        table.add_row(name, *(str(row[key]) for key in keys))
    Console(width=150).print(table)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
