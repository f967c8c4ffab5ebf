"""`Executable.compare`: every tensor of the compiled program beside eager's; see docs/comparing.md."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.fx import Node

from covan_mlir.artifacts.attachment import Attach
from covan_mlir.comparing.bisect import Answer, first_wrong, shortest_failing
from covan_mlir.comparing.comparison import ActionComparison, Comparison, Result, Suspicion
from covan_mlir.comparing.eager import Eager, Judged
from covan_mlir.comparing.measure import Tolerance
from covan_mlir.comparing.probe import ProbeError, Prober, same_sites
from covan_mlir.comparing.running import RunError, run
from covan_mlir.comparing.source import captured_of
from covan_mlir.compilation.options import CompileOptions
from covan_mlir.compilation.origin import Origin
from covan_mlir.frontend.actions import source_actions
from covan_mlir.provenance.model import Action, Site
from covan_mlir.reporting.comparison_json import Status
from covan_mlir.runtime.compiled import CompiledModel

log = logging.getLogger(__name__)
_LISTED = 8  # names in a sentence


@dataclass(frozen=True)
class CompareOptions:
    """How to compare.

    Attributes:
        tolerance: what is too far.
        memory: bytes of tensors that one program may return at once; more are observed by several programs in turn,
            and a single one that is larger is sampled. None: a quarter of the memory that is free.
        timeout: seconds that a program may run, or None.
        attach: of an executable from a file that has attachments, what it was compiled with.
        compiled_with: of an executable from a file, the ``iree_flags``, ``extra_steps`` and ``extensions`` that it was
            compiled with, which are not taken from a file's word; all others are.
        compilations: programs to be compiled at most when a fault is searched for that vanishes when it is looked at.
    """

    tolerance: Tolerance = field(default_factory=Tolerance)
    memory: int | None = None
    timeout: float | None = 300.0
    compilations: int = 32
    attach: Attach = field(default_factory=dict, hash=False)
    compiled_with: CompileOptions | None = None

    def __post_init__(self) -> None:
        if self.memory is not None and self.memory <= 0:
            raise ValueError(f"memory is a positive number of bytes or None, not {self.memory}")
        if self.timeout is not None and self.timeout <= 0:
            raise ValueError(f"timeout is a positive number of seconds or None, not {self.timeout}")
        if self.compilations < 0:
            raise ValueError(f"compilations is a number of programs, not {self.compilations}")


def compare(
    compiled: CompiledModel,
    origin: Origin | None,
    leaves: Sequence[Any],
    model: Any = None,
    arguments: tuple[tuple[Any, ...], Mapping[str, Any]] = ((), {}),
    options: CompareOptions | None = None,
    tell: Callable[[str], None] = lambda step: None,
) -> Comparison:
    """Compare; see `covan_mlir.Executable.compare`.

    Args:
        origin: what it was compiled from, if that is known.
        leaves: the arguments, flat, in the order of the signature.
        arguments: the same as the caller gave them, to export a ``model`` with.
    """
    options = options or CompareOptions()
    captured, compiled_with = captured_of(compiled, origin, model, arguments, options.attach, options.compiled_with)
    with tempfile.TemporaryDirectory(prefix="covan-compare-") as folder:
        tell("running eager PyTorch")
        eager = Eager(captured, leaves, options.tolerance)
        survey = eager.survey()
        memory = options.memory or _free() // 4
        strides = {name: -(-size // memory) for name, size in survey.sizes.items() if size > memory}
        prober = Prober(captured, compiled_with, compiled.target, leaves, Path(folder), strides, options.timeout, tell)
        return _Search(compiled, eager, survey.sizes, survey.random, survey.undefined, memory, prober, options).run()


def _free() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class _Search:
    """One comparison as it goes on."""

    def __init__(
        self,
        compiled: CompiledModel,
        eager: Eager,
        sizes: Mapping[str, int],
        random: set[str],
        undefined: set[str],
        memory: int,
        prober: Prober,
        options: CompareOptions,
    ) -> None:
        self._compiled = compiled
        self._lineage = compiled.lineage
        self._eager = eager
        self._sizes = sizes
        self._random, self._undefined = random, undefined
        self._memory = memory
        self._prober = prober
        self._options = options
        graph = prober.captured.program.graph
        self._nodes: dict[str, Node] = {node.name: node for node in graph.nodes}
        known = self._lineage.actions
        self._actions: dict[str, Action] = {
            call: known[action.id] if known else action for call, action in source_actions(graph).items()
        }
        self._notes: list[str] = []
        self._crashes: tuple[str, str] | None = None
        self._unobserved: dict[str, str] = {}

    def run(self) -> Comparison:
        results, crash = self._as_it_is()
        wanted = [name for name in self._sizes if self._why_not(name) is None]
        judged = self._full_taps(wanted)
        rows = tuple(self._row(name, judged.get(name)) for name in self._sizes if self._actions[name].live)
        first = next((row for row in rows if row.status in ("beyond", "crash")), None)
        inherited = [row for row in rows if row.status == "inherited"]
        off = [result for result in results if result.measured.beyond and self._comparable(result.name)]
        persists: bool | None = None
        suspicion = None
        if first is not None:
            persists = self._persists(first, off, crash)
        elif off and inherited and all(self._row(r.name, judged.get(r.name)).status == "inherited" for r in off):
            self._notes.append(
                "the results are beyond tolerance, and each tensor is right for its inputs: a comparison or a choice "
                "among nearly equal values went the other way, or of the difference of nearly equal values little more "
                f"than their errors is left. {inherited[0].action.name} is the first that differs"
            )
        elif off or crash:
            persists = True
            if self._again():
                self._notes.append(
                    "with all tensors observed nothing is wrong: the fault is in what the compiler makes of them "
                    "together; it was searched for with one tensor observed at a time"
                )
                first, suspicion = self._hidden(off[0].name if off else "", bool(crash))
            else:
                self._notes.append(
                    "compiled again from the model as it is now, the program is right: the model's weights are others "
                    "than those compiled in, or another compiler made the program"
                )
        if self._astray():
            persists = True
        return Comparison(
            rows, tuple(results), crash, first, suspicion, persists, tuple(self._notes), self._prober.compilations
        )

    def _as_it_is(self) -> tuple[list[Result], str]:
        """Run the program itself, with nothing observed."""
        self._prober.tell("running the program")
        try:
            outputs = run(self._compiled, self._prober.leaves, self._prober.new_folder(), self._options.timeout)
        except RunError as error:
            return [], str(error)
        judged = self._eager.outputs([output.read() if output else None for output in outputs])
        nodes = self._eager.output_nodes()
        return [
            Result(index, node.name, judgement.measured)
            for index, (node, judgement) in enumerate(zip(nodes, judged, strict=True))
            if judgement is not None
        ], ""

    def _astray(self) -> bool:
        """Whether the exported program, run by PyTorch, gives other results than the model's own framework."""
        captured = self._prober.captured
        if captured.reference is None:
            return False
        try:
            own = captured.reference(self._prober.leaves)
        except Exception as error:  # it lacks operators, or refuses types, each in its own way
            why = next(iter(str(error).splitlines()), type(error).__name__)
            self._notes.append(f"the model's own framework was not asked: it does not run the model ({why})")
            return False
        try:
            judged = self._eager.outputs(own)
            wrong = [str(index) for index, result in enumerate(judged) if result is not None and result.beyond]
        except ValueError as error:  # other shapes or types
            wrong = [str(error)]
        if wrong:
            self._notes.append(
                "the translation of the model is wrong: run by PyTorch, it differs from the model's own framework in "
                f"result {', '.join(wrong)}"
            )
        return bool(wrong)

    def _why_not(self, name: str) -> str | None:
        """Why a tensor is not observed."""
        if name in self._unobserved:
            return self._unobserved[name]
        if not self._actions[name].live:
            return "the results do not need it"
        if name in self._random:
            return "its values are drawn at random, or depend on such values"
        if name in self._undefined:
            return "its elements have no defined values"
        return None

    def _comparable(self, name: str) -> bool:
        return name not in self._random and name not in self._undefined

    def _full_taps(self, wanted: list[str]) -> dict[str, Judged]:
        """Observe all tensors: by one program, or by several in turn where they are too large together."""
        groups = self._groups(wanted)
        if len(groups) > 1:
            self._notes.append(
                f"the tensors take {_bytes(sum(self._sizes[name] for name in wanted))}: they were observed by "
                f"{len(groups)} programs in turn, each with some of them"
            )
        for name, stride in self._prober.strides.items():
            if name in wanted:
                size = _bytes(self._sizes[name])
                self._notes.append(f"{name} takes {size}: one in {stride} of its elements was compared")
        observed: dict[str, Callable[[], torch.Tensor]] = {}
        for group in groups:
            tensors, complete = self._group(group)
            observed |= tensors
            if not complete:
                break
        self._prober.tell("comparing")
        judged = self._eager.judge(observed, self._prober.strides)
        narrow = [name for name, judgement in judged.items() if not judgement.measured.exact]
        if narrow:
            self._notes.append(f"without a float64 reference, for eager does not run there: {_listed(narrow)}")
        return judged

    def _groups(self, wanted: Sequence[str]) -> list[list[str]]:
        groups: list[list[str]] = []
        held = 0
        for name in wanted:
            size = self._sizes[name] // self._prober.strides.get(name, 1)
            if not groups or held + size > self._memory:
                groups.append([])
                held = 0
            groups[-1].append(name)
            held += size
        return groups

    def _group(self, names: list[str]) -> tuple[dict[str, Callable[[], torch.Tensor]], bool]:
        """-> (the tensors, whether all were observed). Where the program crashes, those before that."""
        try:
            return dict(self._prober.observe(names).values), True
        except ProbeError as error:
            self._notes.append(f"with all tensors observed: {error}")
        best: dict[str, Callable[[], torch.Tensor]] = {}
        said = ""

        def fails(count: int) -> bool:
            nonlocal best, said
            try:
                values = self._prober.observe(names[:count], keep=False).values
            except ProbeError as error:
                said = str(error)
                return True
            if len(values) > len(best):
                best = dict(values)
            return False

        count = shortest_failing(len(names), fails)
        if count is None:
            self._notes.append("what is computed after the last tensor that is observed makes it fail")
            return best, True
        self._crashes = (names[count - 1], said)
        for name in names[count:]:
            self._unobserved[name] = f"it comes after {names[count - 1]}"
        return best, False

    def _row(self, name: str, judged: Judged | None) -> ActionComparison:
        action = self._actions[name]
        sites, fate = self._placed(action)
        stride = self._prober.strides.get(name, 1)
        if judged is None:
            if self._crashes is not None and name == self._crashes[0]:
                return ActionComparison(action, "crash", sites, why=self._crashes[1], fate=fate)
            why = self._why_not(name) or "the program failed before"
            return ActionComparison(action, "unobserved", sites, why=why, fate=fate)
        status: Status = "agrees" if not judged.beyond else "inherited" if judged.inherited else "beyond"
        return ActionComparison(action, status, sites, judged.measured, sampled=stride, fate=fate)

    def _placed(self, action: Action) -> tuple[tuple[Site, ...], str]:
        """The sites that perform an action, or read what became of it; and its fate."""
        if not self._lineage.fates:
            return (), ""
        fate = self._lineage.fate(action)
        return tuple(self._lineage.site(index) for index in fate.sites), fate.kind

    def _persists(self, first: ActionComparison, off: list[Result], crash: str) -> bool:
        """Whether a fault that full taps show is there without them; says how that is known."""
        name = first.action.name
        if first.status == "crash":
            self._notes.append(
                "the program as it is crashes as well" if crash else "the program as it is runs: only observing crashes"
            )
            return bool(crash)
        alone, same = self._alone(name)
        if alone == "wrong":
            code = "in the same sites as before" if same else "though the program is cut into other sites then"
            self._notes.append(f"the fault persists with {name} alone observed, {code}")
        elif off or crash:
            self._notes.append(f"with {name} alone observed it is right, and the program's results are wrong")
        else:
            self._notes.append(
                f"the fault shows only with all tensors observed: with {name} alone observed it is right"
            )
        if off:
            self._notes.append("the results of the program as it is are wrong as well")
        elif not crash:
            self._notes.append("the results of the program as it is are within tolerance")
        return alone == "wrong" or bool(off) or bool(crash)

    def _again(self) -> bool:
        """Whether a program compiled anew, with nothing observed, is wrong as well."""
        try:
            seen = self._prober.observe([])
        except ProbeError:
            return True
        outputs = self._eager.outputs([output.read() if output else None for output in seen.outputs])
        nodes = self._eager.output_nodes()
        return any(
            judgement is not None and judgement.beyond and self._comparable(node.name)
            for node, judgement in zip(nodes, outputs, strict=True)
        )

    def _alone(self, name: str) -> tuple[Answer, bool]:
        """What observing one tensor alone says, and whether the program was cut into the same sites."""
        try:
            seen = self._prober.observe([name])
        except ProbeError:
            try:
                seen = self._prober.observe([name], keep=False)
            except ProbeError:
                return "wrong", False
        same = same_sites(self._lineage, seen.lineage)
        if self._eager.judge(seen.values, self._prober.strides)[name].beyond:
            return "wrong", same
        if not seen.outputs:
            return "right", same
        outputs = self._eager.outputs([output.read() if output else None for output in seen.outputs])
        return ("right" if any(judgement is not None and judgement.beyond for judgement in outputs) else "hidden"), same

    def _hidden(self, wrong: str, crash: bool) -> tuple[ActionComparison | None, Suspicion | None]:
        """Search for a fault that vanishes when everything is observed."""
        nodes = [node for node in self._eager.output_nodes() if isinstance(node, Node)]
        ends = [self._nodes[wrong]] if wrong else nodes
        before = _ancestors(ends)
        values = [name for name in self._sizes if self._nodes[name] in before and self._why_not(name) is None]
        if not values:
            return None, None
        left = self._options.compilations

        def ask(name: str) -> Answer | None:
            nonlocal left
            if left <= 0:
                return None
            left -= 1
            return self._alone(name)[0]

        edges = [name for name in values[:-1] if self._leaves_site(name)]
        fault = first_wrong([*edges, values[-1]], ask)
        start = values.index(fault.before) + 1 if fault.before in values else 0
        inner = values[start : values.index(fault.first) + 1]
        fault = first_wrong(inner, ask, fault.before)
        culprit = self._actions[fault.first]
        if not fault.hidden and fault.complete:
            sites, fate = self._placed(culprit)
            judged = None if crash else self._first_measured(fault.first)
            row = ActionComparison(
                culprit, "crash" if crash else "beyond", sites, judged.measured if judged else None, fate=fate
            )
            if fault.before:
                self._notes.append(f"{fault.before}, the last before it, is right when it alone is observed")
            return row, None
        if fault.hidden:
            self._notes.append(
                f"observing any of {', '.join(fault.hidden)} hides the fault: it is in how they are computed together"
            )
        if not fault.complete:
            self._notes.append("the search ended early: give CompareOptions(compilations=...) more to find it")
        low = values.index(fault.before) + 1 if fault.before in values else 0
        actions = tuple(self._actions[name] for name in values[low : values.index(fault.first) + 1])
        sites = tuple(
            site for site in self._lineage.sites if not {action.id for action in actions}.isdisjoint(site.trace)
        )
        return None, Suspicion(actions, sites, fault.complete)

    def _first_measured(self, name: str) -> Judged | None:
        try:
            return self._eager.judge(self._prober.observe([name]).values, self._prober.strides)[name]
        except ProbeError:
            return None

    def _leaves_site(self, name: str) -> bool:
        """Whether the compiled program has this tensor in memory: some site that reads it does not compute it."""
        action = self._actions[name]
        own = {site.id for site in self._lineage.where(action)} if self._lineage.sites else set[int]()
        readers = [self._actions[user.name] for user in self._nodes[name].users if user.name in self._actions]
        return bool(own) and any(site.id not in own for reader in readers for site in self._lineage.where(reader))


def _ancestors(nodes: Sequence[Node]) -> set[Node]:
    ancestors: set[Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in ancestors:
            ancestors.add(node)
            stack += node.all_input_nodes
    return ancestors


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def _bytes(size: int) -> str:
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.1f} {unit}"
    return f"{size} bytes"
