"""A ground truth for provenance that does not come from us: change one operation, compile again, and see what changed.

A mutant (`mutants`) differs in one operator, one number, or two rows of one weight. A site is what it computes (the
machine code of its kernel, with the constants in it) and what constants it is given; the sites that differ between the
two programs are the truth for the changed node. Mutants that change how the program is cut into sites are left out:
sites cannot be told apart then.

Twin sites share a kernel that takes what differs between them as arguments. A mutation of one makes them two kernels,
and the code of both changes. Where sharing changed, the dispatch regions are compared instead, as they were before.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import capstone
import capstone.x86
import torch
from iree.compiler import ir
from mutants import Mutant, mutants
from torch.export import ExportedProgram

from covan_mlir.artifacts import machine_code
from covan_mlir.errors import ExportError
from covan_mlir.frontend import importer
from covan_mlir.frontend.capture import capture
from covan_mlir.lineage import Lineage
from covan_mlir.lowering import job, marks, targets
from covan_mlir.lowering.dispatch_graph import VIEWS
from covan_mlir.lowering.pipeline import PipelineState
from covan_mlir.lowering.request import Job
from covan_mlir.provenance.program_graph import Argument, NodeResult, ProgramGraph
from covan_mlir.provenance.relation import Source
from covan_mlir.provenance.tracing import SourceProgram, trace_program


@dataclass(frozen=True)
class Built:
    """A compiled program, as the oracle sees it.

    Attributes:
        sites: per site, what it computes and which constants it is given.
        shared: per site, the sites that run the same kernel.
        regions: per site, the text of its dispatch region.
        constants: the sites that are given a constant, or hold an array of numbers.
        shape: how the program is cut into sites; two programs can be compared when theirs is the same.
    """

    lineage: Lineage
    sites: tuple[bytes, ...]
    shared: tuple[frozenset[int], ...]
    regions: tuple[str, ...]
    constants: frozenset[int]
    shape: tuple[Any, ...]

    def differs(self, other: Built, site: int) -> bool:
        if self.sites[site] == other.sites[site]:
            return False
        return self.shared[site] == other.shared[site] or self.regions[site] != other.regions[site]


@dataclass(frozen=True)
class Verdict:
    """One mutation: the sites that changed, and the sites that the lineage names."""

    node: str
    kind: str
    what: str
    fate: str
    truth: frozenset[int]
    claimed: frozenset[int]


@dataclass(frozen=True)
class LeftOut:
    """A mutation that says nothing, and why."""

    node: str
    kind: str
    what: str
    why: str


class Oracle:
    """Builds one program again and again, each time with something changed.

    Args:
        fuse: with chains of reductions in kernels of their own.
    """

    def __init__(self, program: ExportedProgram, fuse: bool = False) -> None:
        self._program = program
        self._fuse = fuse
        self._decomposed = importer.decompose(program)
        self.base = self.build()
        self._fates = self.base.lineage.part_fates
        parts = {part.name: part for part in self.base.lineage.parts.values()}
        self._constant = Source(self.base.lineage.parts).constant
        # Twins are one value: to change one of several makes two values of it, and tells nothing of the one.
        twins: dict[tuple[int, str, str], list[tuple[Mutant, int]]] = {}
        for mutant in mutants(self._decomposed):
            part = parts.get(mutant.node)
            if part is not None and self._fates[part.id].kind != "dead":
                twins.setdefault((part.twin, mutant.kind, mutant.what), []).append((mutant, part.id))
        self._all = list(twins.values())

    def __len__(self) -> int:
        return len(self._all)

    def build(self) -> Built:
        with _decomposed_already(self._decomposed):
            captured = capture(self._program, (), None, None)
            imported = importer.import_program(captured, provenance=True, external_weight_bytes=1 << 40)
        watcher = _Watcher()
        own = job.instrument
        job.instrument = lambda steps, observers: own(steps, [*observers, watcher])  # type: ignore[assignment]  # in its place
        try:
            flags = targets.parse("cpu").compiler_flags(False)
            asked = Job("linalg", flags, fuse=self._fuse)
            result, vmfb = job.compile_job(imported.bytecode, asked, lambda step: None)
        finally:
            job.instrument = own
        assert result.observed is not None
        graph, commands = result.observed.graph, result.observed.commands
        source = SourceProgram(imported.actions, imported.results, imported.identity)
        lineage = trace_program(source, replace(result.observed, phases=()))
        code = _kernels(vmfb)
        nodes = [site.node for site in lineage.sites]
        read_through = [_read_through(node, graph, set(nodes) - watcher.layouts, watcher.layouts) for node in nodes]
        names = [command.kernel if command.kind == "dispatch" else n for n, command in enumerate(commands)]
        return Built(
            lineage,
            tuple(
                code.get(command.kernel, b"") + b"".join(watcher.given[n] for n in reads)
                for command, reads in zip(commands, read_through, strict=True)
            ),
            tuple(frozenset(i for i, other in enumerate(names) if other == name) for name in names),
            tuple("" if node is None else watcher.regions[node] for node in nodes),
            frozenset(i for i, reads in enumerate(read_through) if any(map(watcher.reads_constants, reads))),
            (_cut(graph), [(command.kind, command.phase, command.node) for command in commands]),
        )

    def judge(self, index: int) -> Verdict | LeftOut:
        """What the mutant of a number says about the lineage."""
        told = self._told(index)
        changed = self._mutated([index])
        if isinstance(changed, str):
            return LeftOut(*told, changed)
        truth = self._differing(changed)
        parts = self._parts(index)
        if not truth and all(self._constant[part] for part in parts):
            # Two masks that are true everywhere: "and" and "or" give the same.
            return LeftOut(*told, "the constant has the same value")
        return Verdict(*told, self._fates[parts[0]].kind, truth, self._claimed(index, truth))

    def judge_together(self, indices: Sequence[int]) -> list[Verdict | LeftOut]:
        """The same for several mutants whose traces share no site, built as one program.

        If the sites that changed are those that the traces name, each trace is taken for right. An error of one trace
        stays hidden only where it falls into what another of the group claims: ask twice, in other company. If they
        are not, each mutant is built by itself.
        """
        changed = self._mutated(indices)
        if not isinstance(changed, str):
            truth = self._differing(changed)
            claims = [self._claimed(index, truth) for index in indices]
            if all(claims) and truth == frozenset().union(*claims):
                kinds = [self._fates[self._parts(index)[0]].kind for index in indices]
                return [Verdict(*self._told(i), k, c, c) for i, k, c in zip(indices, kinds, claims, strict=True)]
        return [self.judge(index) for index in indices]

    def groups(self, indices: Iterable[int], size: int, seed: int) -> list[list[int]]:
        """The mutants, each in one group of at most ``size``, at random among those whose traces share no site."""
        mixed = list(indices)
        random.Random(seed).shuffle(mixed)
        groups: list[tuple[set[int], list[int]]] = []
        for index in mixed:
            claimed = self._traced(index)  # whole, so that no other's change passes for one of a weight
            fitting = (g for g in groups if len(g[1]) < size and g[0].isdisjoint(claimed))
            taken, group = next(fitting, (set(), []))
            if not group:
                groups.append((taken, group))
            taken |= claimed
            group.append(index)
        return [group for _, group in groups]

    def _told(self, index: int) -> tuple[str, str, str]:
        mutant = self._all[index][0][0]
        return mutant.node, mutant.kind, mutant.what

    def _parts(self, index: int) -> list[int]:
        return [part for _, part in self._all[index]]

    def _mutated(self, indices: Sequence[int]) -> Built | str:
        """The program with these mutants, or why it says nothing."""
        with ExitStack() as stack:
            for index in indices:
                for mutant, _ in self._all[index]:
                    stack.enter_context(mutant.applied())
            try:
                changed = self.build()
            except (job.JobError, ExportError) as error:
                return f"does not compile: {error}"
        return changed if changed.shape == self.base.shape else "the program is cut into other sites"

    def _differing(self, changed: Built) -> frozenset[int]:
        return frozenset(i for i in range(len(self.base.sites)) if self.base.differs(changed, i))

    def _traced(self, index: int) -> frozenset[int]:
        """The sites that the lineage names."""
        return frozenset(site for part in self._parts(index) for site in self._fates[part].sites)

    def _claimed(self, index: int, truth: frozenset[int]) -> frozenset[int]:
        """The sites that the lineage names, of those that the mutant can show."""
        claimed = self._traced(index)
        if self._told(index)[1] == "weight":
            # Of an operation in several sites, a weight shows only those that read it: a padded convolution fills,
            # copies and convolves, and only the last is given the filter.
            claimed &= self.base.constants | truth
        return claimed


def verdicts(program: ExportedProgram, limit: int | None = None, fuse: bool = False) -> Iterator[Verdict | LeftOut]:
    """One verdict per mutant of a program; of ``limit`` of them, evenly spread, if there are more."""
    oracle = Oracle(program, fuse)
    count = min(limit or len(oracle), len(oracle))
    yield from (oracle.judge(i * len(oracle) // count) for i in range(count))


def settle(module: torch.nn.Module) -> torch.nn.Module:
    """Give norms and biases values that a trained network would have.

    Scales of exactly one and shifts of exactly zero are neutral: the compiler takes the whole operation away, and equal
    weights become one constant.
    """
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() == 1:
                parameter += 0.1 * torch.randn_like(parameter)
    return module


@contextmanager
def _decomposed_already(decomposed: ExportedProgram) -> Iterator[None]:
    own = importer.decompose
    importer.decompose = lambda program: decomposed
    try:
        yield
    finally:
        importer.decompose = own


def _cut(graph: ProgramGraph) -> list[Any]:
    """The dispatch graph without what only names: constants are numbered anew when one of them changes."""
    return [
        (
            node.kind,
            node.phase,
            len(node.outputs),
            [value if isinstance(value, NodeResult | Argument) else type(value) for value in node.inputs],
        )
        for node in graph.nodes
    ]


class _Watcher:
    """What the compiler's own observers do not keep: by node, its constant operands (hashed) and its region's text.

    Nodes that are ``fed`` are given a constant tensor; those of ``layouts`` only lay out what they are given.
    """

    def __init__(self) -> None:
        self.given: dict[int, bytes] = {}
        self.fed: set[int] = set()
        self.layouts: set[int] = set()
        self.regions: dict[int, str] = {}

    def __call__(self, step: str, state: PipelineState) -> None:
        if step != "iree:dispatch-creation":
            return
        module = state.module.operation
        # A name starts a word: digits of constants that are written out would be looked through from each of them on.
        blobs = dict(re.findall(r'\b(\w+): "0x([0-9A-Fa-f]+)"', module.get_asm()))
        stored = {
            op.attributes["sym_name"].value: op.attributes["initial_value"]
            for op in marks.walk(module, "util.global")
            if op.name == "util.global" and "initial_value" in op.attributes
        }

        def value_of(value: Any) -> str:
            op = value.owner
            while not isinstance(op, ir.Block):
                if op.name == "util.global.load":
                    return _hash(stored.get(op.attributes["global"].value), blobs)
                if op.name in ("arith.constant", "flow.tensor.constant"):
                    return _hash(op.attributes["value"], blobs)
                if op.name not in VIEWS:
                    break
                op = op.operands[0].owner
            return ""

        for op in marks.walk(module, "flow.", "tensor."):
            index = marks.mark_of(op.location)
            if index is not None and index not in self.regions:
                values = [value_of(operand) for operand in op.operands]
                self.given[index] = " ".join(values).encode()
                if any(v and "tensor<" in str(o.type) for v, o in zip(values, op.operands, strict=True)):
                    self.fed.add(index)
                if op.name == "flow.tensor.encode":
                    self.layouts.add(index)
                self.regions[index] = _renumbered(op.get_asm(large_elements_limit=8))
                if not op.regions:  # a slice, an update: where it reads and writes may stand in its attributes
                    self.given[index] += self.regions[index].encode()

    def reads_constants(self, node: int) -> bool:
        return node in self.fed or "dense<" in self.regions[node]


def _read_through(node: int | None, graph: ProgramGraph, apart: set[int | None], layouts: set[int]) -> list[int]:
    """A site's node, and those that it reads constants and other values through, up to such as stand apart.

    A slice that costs nothing is no site, and what was laid out anew is still what it was: the site that did so has no
    part in it.
    """
    if node is None or node in layouts:
        return []
    nodes, stack = [], [node]
    while stack:
        nodes.append(stack.pop())
        values = graph.nodes[nodes[-1]].inputs
        stack += [value.node for value in values if isinstance(value, NodeResult) and value.node not in apart]
    return nodes


def _hash(attribute: Any, blobs: dict[str, str]) -> str:
    if attribute is None:
        return ""  # filled by an initialiser, which is a site itself
    text = str(attribute)
    resource = re.match(r"dense_resource<(\w+)>", text)
    return hashlib.sha256((blobs.get(resource[1], "") if resource else text).encode()).hexdigest()


def _renumbered(text: str) -> str:
    """With values named in the order in which they occur: their own names count what stands before them."""
    names: dict[str, str] = {}
    return re.sub(r"%[\w#]+", lambda name: names.setdefault(name[0], f"%{len(names)}"), text)


def _kernels(program: bytes) -> dict[str, bytes]:
    """Each kernel as what it does: its instructions, with the constants they read in place of those's addresses.

    Kernels are linked together, and a change in one moves the constants and the code of all others.
    """
    kernels: dict[str, bytes] = {}
    for image in machine_code.images(program):
        data = image.get_section_by_name(".rodata")
        base, held = (data["sh_addr"], data.data()) if data is not None else (0, b"")
        for name, (start, code) in machine_code.located_kernels(image).items():
            kernels[name] = b"\n".join(_instructions(code, start, base, held))
    return kernels


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
