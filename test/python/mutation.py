"""A ground truth for provenance that does not come from us: change one operation, compile again, and see what changed.

A mutation swaps the operator of one node of the decomposed graph for another of the same signature, or changes a number
among its arguments. A site is what it computes (the machine code of its kernel, with the constants in it) and what
constants it is given; the sites that differ between the two programs are the truth for that node. Mutations that change
how the program is cut into sites are left out: sites cannot be told apart then.

Twin sites share a kernel that takes what differs between them as arguments. A mutation of one makes them two kernels,
and the code of both changes. Where sharing changed, the dispatch regions are compared instead, as they were before.

Importing this module sets a flag of the IREE compiler in this process.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import capstone
import capstone.x86
import torch
from iree.compiler.api import ctypes_dl
from torch.export import ExportedProgram
from torch.fx import Node

from covan_mlir import machine_code
from covan_mlir.frontend import importer
from covan_mlir.frontend.capture import capture
from covan_mlir.lineage import Lineage
from covan_mlir.lowering import job, marks, targets
from covan_mlir.lowering.pipeline import State
from covan_mlir.lowering.request import Job
from covan_mlir.tracing import trace_program

_aten = torch.ops.aten

# Each kernel in an executable of its own: linked together, a change in one moves the constants of all. The flag is the
# process's, not a session's.
ctypes_dl._initializeGlobalCL("covan", "--iree-hal-link-executables=false")

# Swaps keep shape, dtype and cost, so that the program is cut as before.
_SWAPS: dict[Any, Any] = {
    _aten.add.Tensor: _aten.sub.Tensor,
    _aten.sub.Tensor: _aten.add.Tensor,
    _aten.mul.Tensor: _aten.sub.Tensor,
    _aten.div.Tensor: _aten.sub.Tensor,
    _aten.relu.default: _aten.sigmoid.default,
    _aten.sigmoid.default: _aten.tanh.default,
    _aten.tanh.default: _aten.sigmoid.default,
    _aten.gelu.default: _aten.silu.default,
    _aten.silu.default: _aten.sigmoid.default,
    _aten.rsqrt.default: _aten.sqrt.default,
    _aten.sqrt.default: _aten.rsqrt.default,
    _aten.reciprocal.default: _aten.sqrt.default,
    _aten.exp.default: _aten.sin.default,
    _aten.cos.default: _aten.sin.default,
    _aten.sin.default: _aten.cos.default,
    _aten.neg.default: _aten.abs.default,
    _aten.minimum.default: _aten.maximum.default,
    _aten.maximum.default: _aten.minimum.default,
    _aten.amax.default: _aten.amin.default,
    _aten.le.Tensor: _aten.lt.Tensor,
    _aten.lt.Tensor: _aten.le.Tensor,
    _aten.gt.Tensor: _aten.ge.Tensor,
    _aten.bitwise_and.Tensor: _aten.bitwise_or.Tensor,
    _aten.logical_and.default: _aten.logical_or.default,
}


@dataclass(frozen=True)
class Built:
    """A compiled program, as the oracle sees it: per site, what it computes and which constants it is given."""

    lineage: Lineage
    sites: tuple[bytes, ...]
    shared: tuple[frozenset[int], ...]
    regions: tuple[str, ...]
    shape: tuple[tuple[str, str], ...]

    def differs(self, other: Built, site: int) -> bool:
        if self.sites[site] == other.sites[site]:
            return False
        return self.shared[site] == other.shared[site] or self.regions[site] != other.regions[site]


@dataclass(frozen=True)
class Verdict:
    """One mutation: the sites that changed, and the sites that the lineage names."""

    part: int
    name: str
    what: str
    truth: frozenset[int]
    claimed: frozenset[int]


def change_of(node: Node) -> tuple[str, Callable[[Node], None]] | None:
    """How a node can be changed without changing the types around it, if it can."""
    target = node.target
    if target is _aten.hardtanh.default:
        return "another bound", lambda n: n.update_arg(2, 5.5)
    number = next((i for i, a in enumerate(node.args) if isinstance(a, float) and a not in (0.0, 1.0)), None)
    value = node.meta.get("val")
    if number is not None and isinstance(value, torch.Tensor) and len(node.args) <= 3:
        return "another number", lambda n: n.update_arg(number, n.args[number] * 1.25 + 0.25)
    swap = _SWAPS.get(target)
    if swap is None or not isinstance(value, torch.Tensor):
        return None
    if any(isinstance(a, bool) for a in node.args) or len(node.args) > len(swap._schema.arguments):
        return None
    if any(isinstance(a, int | float) for a in node.args[1:2]) and node.args[1] in (0, 1):
        return None  # x * 1 and x + 0 are what the compiler takes away: to change them adds an operation
    return f"{swap} for {target}", lambda n: setattr(n, "target", swap)


def build(program: ExportedProgram, change: str | None = None) -> Built:
    """Compile in this process, with the node called ``change`` changed after decomposition."""
    with _changed(change):
        imported = importer.import_program(
            capture(program, (), None, None), provenance=True, external_weight_bytes=1 << 40
        )
    constants = _Constants()
    own = job.instrument
    job.instrument = lambda steps, observers: own(steps, [*observers, constants])  # type: ignore[assignment]
    try:
        result, vmfb = job.compile_job(imported.bytecode, Job("linalg", targets.flags("cpu")), lambda step: None)
    finally:
        job.instrument = own
    history = [(step, {int(k): v for k, v in changed.items()}) for step, changed in result["history"]]
    graph, rows = result["graph"], result["sites"]
    lineage = trace_program(
        imported.actions, imported.results, imported.identity, graph, rows, result["commands"], history
    )
    code = _kernels(vmfb)
    names = [row["kernel"] if row["kind"] == "dispatch" else index for index, row in enumerate(rows)]
    return Built(
        lineage,
        tuple(code.get(row["kernel"], b"") + _given(row, graph, constants.values) for row in rows),
        tuple(frozenset(i for i, other in enumerate(names) if other == name) for name in names),
        tuple("" if row["node"] is None else constants.regions[row["node"]] for row in rows),
        tuple((row["kind"], row["phase"]) for row in rows),
    )


def verdicts(program: ExportedProgram, limit: int | None = None) -> Iterator[Verdict | str]:
    """One verdict per node that can be changed; the reason for a mutation that does not count."""
    base = build(program)
    decomposed = importer.decompose(program)
    parts = {part.name: part for part in base.lineage.parts.values()}
    candidates = [n for n in decomposed.graph.nodes if n.op == "call_function" and n.name in parts and change_of(n)]
    step = 1 if limit is None else max(1, len(candidates) // limit)
    for node in candidates[::step]:
        change = change_of(node)
        assert change is not None
        part = parts[node.name]
        fate = base.lineage.part_fates[part.id]
        if fate.kind == "dead":
            continue
        mutant = build(program, node.name)
        if mutant.shape != base.shape:
            yield f"{node.name}: {change[0]}: the program is cut into other sites"
            continue
        truth = frozenset(i for i in range(len(base.sites)) if base.differs(mutant, i))
        yield Verdict(part.id, node.name, change[0], truth, frozenset(fate.sites))


@contextmanager
def _changed(name: str | None) -> Iterator[None]:
    own = importer.decompose

    def decompose(program: ExportedProgram) -> ExportedProgram:
        decomposed = own(program)
        for node in decomposed.graph.nodes:
            if node.name == name:
                change = change_of(node)
                assert change is not None
                change[1](node)
        return decomposed

    importer.decompose = decompose
    try:
        yield
    finally:
        importer.decompose = own


class _Constants:
    """What the compiler's observers do not keep: constants by name, hashed, and the text of each dispatch region."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.regions: dict[int, str] = {}

    def __call__(self, step: str, state: State) -> None:
        if step == "iree:dispatch-creation":
            for op in marks.walk(state.module.operation, "flow."):
                index = marks.mark_of(op.location)
                if index is not None:
                    self.regions.setdefault(index, op.get_asm(large_elements_limit=8))
        if step != "iree:global-optimization":
            return
        text = state.module.operation.get_asm()
        blobs = dict(re.findall(r'(\w+): "0x([0-9A-Fa-f]+)"', text))
        for name, value in re.findall(r"util\.global private @(\S+) .*?= (dense.*?) : tensor", text):
            resource = re.match(r"dense_resource<(\w+)>", value)
            held = blobs.get(resource[1], "") if resource else value
            self.values[name] = hashlib.sha256(held.encode()).hexdigest()


def _given(row: dict[str, Any], graph: dict[str, Any], constants: dict[str, str]) -> bytes:
    if row["node"] is None:
        return b""
    names = [value[1] for value in graph["nodes"][row["node"]]["inputs"] if value[0] == "global"]
    return " ".join(constants.get(name, "") for name in names).encode()


def _kernels(program: bytes) -> dict[str, bytes]:
    """Each kernel as what it does: its instructions, with the constants they read in place of those's addresses."""
    found: dict[str, bytes] = {}
    for image in machine_code.images(program):
        data = image.get_section_by_name(".rodata")
        base, held = (data["sh_addr"], data.data()) if data is not None else (0, b"")
        for name, (start, code) in machine_code.located_kernels(image).items():
            found[name] = b"\n".join(_instructions(code, start, base, held))
    return found


def _instructions(code: bytes, start: int, base: int, held: bytes) -> Iterator[bytes]:
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    decoder.detail = True
    for instruction in decoder.disasm(code, start):
        text = f"{instruction.mnemonic} {instruction.op_str}"
        for operand in instruction.operands:
            if operand.type == capstone.x86.X86_OP_MEM and operand.mem.base == capstone.x86.X86_REG_RIP:
                at = instruction.address + instruction.size + operand.mem.disp - base
                text = f"{instruction.mnemonic} {held[at : at + operand.size].hex()} {instruction.op_str.split('[')[0]}"
        if instruction.group(capstone.CS_GRP_JUMP) or instruction.group(capstone.CS_GRP_CALL):
            # Targets are addresses: what matters is how far they are.
            targets_ = [o.imm - instruction.address for o in instruction.operands if o.type == capstone.x86.X86_OP_IMM]
            text = f"{instruction.mnemonic} {targets_}"
        yield text.encode()
