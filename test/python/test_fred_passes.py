"""Fused forms as operations: what the passes write is what the pipeline fuses, and nothing false is certified."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import plain_chains as chains
import pytest
from fred_chains import attention
from torch_mlir import ir
from torch_mlir.dialects import func

# Makes fred-raise and fred-schedule known.
import covan_mlir.lowering.kernels.passes  # noqa: F401
from covan_mlir import dialects
from covan_mlir.dialects.fred_chain import read_chain, write_chain
from covan_mlir.dialects.fred_data import data
from covan_mlir.dialects.fred_fused import read_fusion
from covan_mlir.dialects.fred_steps import StepWriter
from covan_mlir.fred.algebra import compare, f, select
from covan_mlir.fred.certificate import Certificate
from covan_mlir.fred.chain import Chain
from covan_mlir.fred.check import ClaimError, check
from covan_mlir.fred.expression import Apply, Const, Expr, Read
from covan_mlir.fred.forms import Fusion, Repair, Rolling, Update
from covan_mlir.fred.fuse import fuse
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.select import Choices, Selection, choices
from covan_mlir.machine.description import PRESETS
from covan_mlir.passes.framework.pipeline import parse_pipeline

NAMES = ("softmax", "cross_entropy", "weighted_variance", "layer_norm", "largest_normalised", "norm_linear", "cosine")
NAMES += ("group_norm", "mean_pooling", "skewness", "rms_norm")
PASSES = "fred-rolling-update,fred-split-k,fred-privatize"


def in_ir(chain: Chain, passes: str) -> tuple[Chain, ir.Module]:
    """A function that computes the chain, after passes; and the chain as its ``fred.chain`` holds it."""
    context = ir.Context()
    dialects.load(context)
    with context, ir.Location.unknown():
        module = ir.Module.create()
        writer = StepWriter(chain.sizes, {}, context)
        values = [*chain.inputs, *(chain.values[name] for name in chain.outputs)]
        kinds = [writer.kind(value.axes, value.dtype) for value in values]
        inputs = len(chain.inputs)
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("f", (kinds[:inputs], kinds[inputs:]))
            with ir.InsertionPoint(function.add_entry_block()):
                op = write_chain(chain, list(function.arguments))
                func.ReturnOp(list(op.results))
        plain = read_chain(op)
        del op
        parse_pipeline(f"builtin.module(func.func({passes}))").run(module)
    return plain, module


def fred_op(module: ir.Module) -> Any:
    return module.body.operations[0].regions[0].blocks[0].operations[0].operation


def uncertified(fusion: Fusion) -> str:
    """A fused form without what the operation does not keep: sources, proofs."""
    nothing = Certificate("", ())

    def loop(rolling: Rolling) -> Rolling:
        return replace(rolling, repairs=tuple(replace(r, certificate=nothing) for r in rolling.repairs))

    stages = []
    for stage in fusion.stages:
        if stage.rolling is not None and stage.split is not None:
            rolling = loop(stage.rolling)
            stage = replace(stage, rolling=rolling, split=replace(stage.split, rolling=rolling, certificates=()))
        stages.append(stage)
    # As text: NaN is no equal of itself.
    return repr((fusion.chain, stages))


@pytest.mark.parametrize("name", NAMES)
def test_passes_write_what_is_fused(name: str) -> None:
    make: Callable[[], Chain] = getattr(chains, name)
    plain, module = in_ir(make(), f"{PASSES},fred-certify{{report=false}}")
    fusion_in_ir, fusion = read_fusion(fred_op(module)), fuse(plain)
    assert uncertified(fusion_in_ir) == uncertified(fusion)
    proved = {
        r.target: r.certificate for s in fusion_in_ir.stages if s.rolling for r in s.rolling.repairs if r.kind != "none"
    }
    assert {certificate.result for certificate in proved.values()} <= {"proved"}
    assert all(certificate.proofs for certificate in proved.values())
    refusals = data(fred_op(module).attributes["refusals"])
    assert [row["target"] for row in refusals] == [refusal.target for refusal in fusion.refusals]
    assert len(data(fred_op(module).attributes["rewrites"])) == len(fusion.rewrites)


def test_a_form_survives_as_text() -> None:
    plain, module = in_ir(chains.weighted_variance(), PASSES)
    with module.context:
        again = ir.Module.parse(str(module))
    assert uncertified(read_fusion(fred_op(again))) == uncertified(fuse(plain))


def test_a_form_that_was_cleaned_up_is_certified() -> None:
    _, module = in_ir(chains.weighted_variance(), f"{PASSES},canonicalize,cse")
    certificates = check(read_fusion(fred_op(module)))
    assert set(certificates) == {"l", "mean_sum", "var_sum_0", "var_sum"}


@pytest.mark.parametrize("queries", [1, 40])
def test_schedules_are_those_of_the_kernels(queries: int) -> None:
    plain, module = in_ir(attention(2, queries, 77, 24), f"{PASSES},fred-schedule{{machine=avx512}}")
    op = fred_op(module)
    written = []
    for fusion in (None, read_fusion(op)):
        choice = choices(plain, CpuTarget(PRESETS["avx512"]), fusion)
        assert isinstance(choice, Choices)
        candidate, schedule = choice.pick()
        written.append(candidate.write(schedule, "fred"))
    selection, again = written
    assert isinstance(selection, Selection)
    assert isinstance(again, Selection)
    assert again.executable == selection.executable
    attribute = data(op.attributes["schedule"])
    assert attribute["shape"] == ("keys" if queries == 1 else "queries")
    for field in ("shape", "lane", "stream", "lanes", "vectors", "unroll", "block", "nontemporal"):
        assert attribute[field] == selection.schedule[field]


# What is false


def softmax() -> Fusion:
    return fuse(chains.softmax())


def changed(fusion: Fusion, change: Callable[[Rolling], Rolling]) -> Fusion:
    """The form with another loop, not split."""
    first = fusion.stages[0]
    assert first.rolling is not None
    return replace(fusion, stages=(replace(first, rolling=change(first.rolling), split=None), *fusion.stages[1:]))


def with_line(name: str, change: Callable[[Expr], Expr]) -> Callable[[Rolling], Rolling]:
    def apply(rolling: Rolling) -> Rolling:
        lines = [
            replace(x, expr=change(x.expr)) if isinstance(x, Update) and x.name == name else x for x in rolling.body
        ]
        return replace(rolling, body=tuple(lines))

    return apply


def without_guards(rolling: Rolling) -> Rolling:
    """The loop as somebody would write it who thinks of the reals."""
    from covan_mlir.fred.rolling import Loop, write

    fusion = softmax()
    repairs: dict[str, Repair] = {repair.target: repair for repair in rolling.repairs}
    return write(Loop(fusion.chain, fusion.chain.reductions, repairs, rolling.elements))[0]


def unrepaired(rolling: Rolling) -> Rolling:
    """A claim that nothing has to be done, and the loop that follows from it."""
    repairs = (rolling.repairs[0], replace(rolling.repairs[1], update=L))
    return with_line("l.new", lambda _: f("addf", L, Read("l.local", "f32")))(replace(rolling, repairs=repairs))


def with_end(name: str, expr: Expr) -> Callable[[Rolling], Rolling]:
    def apply(rolling: Rolling) -> Rolling:
        lines = [replace(line, expr=expr) if line.name == name else line for line in rolling.finish]
        return replace(rolling, finish=tuple(lines))

    return apply


M, L = Read("m.new", "f32"), Read("l.old", "f32")
ONE, LEAST = Const(1.0, "f32"), Const(-math.inf, "f32")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_line("l.new", lambda e: e.args[0] if isinstance(e, Apply) else e), "l.new: is not what follows"),
        (with_line("m.new", lambda _: Read("m.local", "f32")), "m.new: is not what follows"),
        (with_line("m.safe", lambda _: M), "m.safe: is not what follows"),
        (without_guards, "l: special values are lost: x = .*: l would be nan"),
        (lambda r: replace(r, state=(r.state[0], replace(r.state[1], initial=ONE))), "l: starts from 1.0"),
        (lambda r: replace(r, repairs=(r.repairs[0], replace(r.repairs[1], statistics=()))), "l: depends on m, and is"),
        (lambda r: replace(r, repairs=(r.repairs[0], replace(r.repairs[1], update=L))), "l.new: is not what follows"),
        (unrepaired, "l: the repair is refuted"),
        (lambda r: replace(r, body=r.body[:-1]), "l.new: is missing"),
        (with_end("m", select(compare("oeq", M, LEAST), Const(float("nan"), "f32"), M)), "m: special values are lost"),
        (with_end("l", Read("l.new", "f32")), "l: special values are lost"),
    ],
)  # fmt: skip
def test_planted_faults_are_found(change: Callable[[Rolling], Rolling], message: str) -> None:
    with pytest.raises(ClaimError, match=message):
        check(changed(softmax(), change))


def test_a_wrong_merge_is_found() -> None:
    fusion = softmax()
    first = fusion.stages[0]
    assert first.split is not None
    merge = [replace(line, expr=Read("l.a", "f32")) if line.name == "l.new" else line for line in first.split.merge]
    split = replace(first.split, merge=tuple(merge))
    with pytest.raises(ClaimError, match=r"l\.new: is not what follows"):
        check(replace(fusion, stages=(replace(first, split=split), *fusion.stages[1:])))


def test_elements_must_be_those_of_the_chain() -> None:
    fusion = softmax()
    second = fusion.stages[1]
    step = replace(second.elements[0], expr=Read("x", "f32"))
    with pytest.raises(ClaimError, match="y: is not computed as in the chain"):
        check(replace(fusion, stages=(fusion.stages[0], replace(second, elements=(step,)))))
