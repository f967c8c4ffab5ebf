"""A lineage small enough to know what its report holds: five actions in two sites, and the source they come from."""

from __future__ import annotations

from artifacts import fusion

from covan_mlir import Lineage
from covan_mlir.provenance.model import Action, Fate, Frame, Part, Site

SOURCE = """import torch


def block(x, w):
    y = x @ w
    y = y.softmax(-1)
    return y.view(-1)


def forward(x, w):
    z = x + 1  # nobody needs it
    return block(x, w), block(x, w)
"""
# action: name, op, module, lines, inputs, fate
ACTIONS = (
    ("matmul", "aten.matmul.default", "block", (5, 12), (), Fate("dispatched", (0,), "iree:dispatch-creation")),
    ("softmax", "aten.softmax.int", "block", (6, 12), (0,), Fate("dispatched", (1,), "iree:dispatch-creation")),
    ("view", "aten.view.default", "block", (7, 12), (1,), Fate("view", (1,), "torch-to-linalg")),
    ("add", "aten.add.Tensor", "", (11,), (), Fate("dead", (), "decompose")),
    ("matmul_1", "aten.matmul.default", "block", (5, 12), (), Fate("merged", (0,), "iree:global-optimization", 0)),
)


def small(file: str) -> Lineage:
    """Five actions in two sites: one action viewed, one dead, one merged into another."""
    actions = [
        Action(
            i,
            name,
            op,
            module,
            tuple(Frame(file, line, "forward" if line > 9 else "block") for line in lines),
            ("f32[8, 8]",),
            (Part(i, i, f"{name}_part", op, inputs, ("f32[8, 8]",)),),
            inputs,
        )
        for i, (name, op, module, lines, inputs, _) in enumerate(ACTIONS)
    ]
    fates = [row[-1] for row in ACTIONS]
    return Lineage(
        actions,
        [
            Site(0, "main_dispatch_0", "call", (0,), (0,)),
            Site(1, "main_dispatch_1_softmax", "call", (1,), (1,), inputs=(0,), views=(2,)),
        ],
        fates=fates,
        part_fates=dict(enumerate(fates)),
        history=[
            ("import", {i: {"torch.aten.op": 1} for i in range(5)}),
            ("torch-to-linalg", {0: {"linalg.matmul": 1}}),
        ],
        tags={1: frozenset({"audit:pii"})},
        fusions=[fusion()],
    )
