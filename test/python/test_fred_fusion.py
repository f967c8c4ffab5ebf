"""Chains fused: which sweeps come out, and that they compute what the chain computes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import run
from textwrap import dedent

import numpy as np
import plain_chains as chains
import pytest

from covan_mlir.fred.algebra import f
from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import Apply
from covan_mlir.fred.forms import Fusion
from covan_mlir.fred.formulas import text
from covan_mlir.fred.fuse import fuse
from covan_mlir.fred.interpret import interpret
from covan_mlir.fred.run import Env, initial_state, merge, run_fusion
from covan_mlir.fred.scalars import DTYPES, Array, is_float

ALL: dict[str, tuple[Callable[[], Chain], list[set[str]]]] = {
    # name: the chain, and the reductions of each sweep (without helpers)
    "softmax": (chains.softmax, [{"m", "l"}, set()]),
    "logsumexp": (chains.logsumexp, [{"m", "l"}]),
    "log_softmax": (chains.log_softmax, [{"m", "l"}, set()]),
    "cross_entropy": (chains.cross_entropy, [{"m", "l", "picked"}]),
    "entropy": (chains.entropy, [{"m", "l", "s"}]),
    "entropy_plain": (chains.entropy_plain, [{"m", "l"}, {"s_sum"}]),
    "weighted_variance": (chains.weighted_variance, [{"m", "l", "mean_sum", "var_sum"}]),
    "variance": (chains.variance, [{"s", "m2"}]),
    "variance_by_import": (chains.variance_by_import, [{"s", "m2"}]),
    "standard_deviation": (chains.standard_deviation, [{"s", "m2"}]),
    "skewness": (chains.skewness, [{"s", "m2"}, {"s3"}]),
    "layer_norm": (chains.layer_norm, [{"s", "m2"}, set()]),
    "norm_of_normalised": (chains.norm_of_normalised, [{"s", "m2", "q"}]),
    "largest_normalised": (chains.largest_normalised, [{"s", "m2"}]),
    "rms_norm": (chains.rms_norm, [{"s"}, set()]),
    "norm_linear": (chains.norm_linear, [{"s", "m2", "out"}]),
    "cosine": (chains.cosine, [{"aa", "bb", "y"}]),
    "group_norm": (chains.group_norm, [{"s", "m2"}, set()]),
    "mean_pooling": (chains.mean_pooling, [{"m", "l"}, {"s"}]),
    "attention": (chains.attention, [{"m", "l", "o_sum"}]),
    "masked": (lambda: chains.attention(chains.masked), [{"m", "l", "o_sum"}]),
    "causal": (lambda: chains.attention(chains.causal), [{"m", "l", "o_sum"}]),
    "soft_cap": (lambda: chains.attention(chains.soft_cap), [{"m", "l", "o_sum"}]),
    "alibi": (lambda: chains.attention(chains.alibi), [{"m", "l", "o_sum"}]),
    "attention_bf16": (lambda: chains.attention(dtype="bf16"), [{"m", "l", "o_wide_sum"}]),
}


def arrays_for(chain: Chain, seed: int = 0, rows: int = 4, scale: float = 2.0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    arrays: dict[str, Array] = {}
    for value in chain.inputs:
        shape = [chain.sizes[axis] or rows for axis in value.axes]
        data = rng.normal(0.3, scale, shape) if is_float(value.dtype) else rng.integers(0, 15, shape)
        arrays[value.name] = data.astype(DTYPES[value.dtype])
    return arrays


def agree(chain: Chain, fusion: Fusion, arrays: Mapping[str, Array], block: int, parts: int) -> None:
    expected = interpret(chain, arrays, "f64")
    got = run_fusion(fusion, arrays, block, parts, "f64")
    for name in chain.outputs:
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("name", ALL)
def test_sweeps(name: str) -> None:
    make, sweeps = ALL[name]
    fusion = fuse(make())
    assert len(fusion.stages) == len(sweeps), [stage.why for stage in fusion.stages]
    for stage, expected in zip(fusion.stages, sweeps, strict=True):
        assert expected <= set(stage.reductions)
    assert all(certificate.result == "proved" for certificate in fusion.certificates)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("block", "parts"), [(1, 1), (7, 1), (16, 1), (64, 1), (5, 3)])
def test_blocks_and_states_compute_the_chain(name: str, block: int, parts: int) -> None:
    chain = ALL[name][0]()
    agree(chain, fuse(chain), arrays_for(chain), block, parts)


@pytest.mark.parametrize("name", ["softmax", "logsumexp", "entropy", "variance", "weighted_variance", "layer_norm"])
@pytest.mark.parametrize("length", [1, 15, 17])
def test_sizes_known_at_run_time(name: str, length: int) -> None:
    chain = getattr(chains, name)(None)
    arrays = arrays_for(chain, rows=length)
    agree(chain, fuse(chain), arrays, 4, 2)


@pytest.mark.parametrize("name", ["attention", "entropy", "layer_norm", "cosine"])
def test_without_repairs_every_statistic_is_final(name: str) -> None:
    chain = ALL[name][0]()
    fusion = fuse(chain, repairs=False)
    assert len(fusion.stages) > len(fuse(chain).stages) or name == "layer_norm"
    assert not any(stage.rolling.dependent for stage in fusion.stages if stage.rolling)
    agree(chain, fusion, arrays_for(chain), 16, 2)


def test_dependence_is_known() -> None:
    kinds = {name: fuse(ALL[name][0]()).stages[0].rolling for name in ("rms_norm", "softmax")}
    assert kinds["rms_norm"] is not None
    assert not kinds["rms_norm"].dependent
    assert kinds["softmax"] is not None
    assert kinds["softmax"].dependent


def test_attention_takes_flash_attentions_form() -> None:
    fusion = fuse(chains.attention())
    (stage,) = fusion.stages
    assert stage.rolling is not None
    repairs = {repair.target: text(repair.update) for repair in stage.rolling.repairs}
    assert repairs["l"] == "l.old * exp(m.old - m.new)"
    assert repairs["o_sum"] == "o_sum.old * exp(m.old - m.new)"
    assert [text(step.expr) for step in stage.rows] == ["o_sum / l"]
    assert [step.name for step in stage.rolling.elements] == ["s"]


def test_variance_takes_chans_form() -> None:
    rolling = fuse(chains.variance()).stages[0].rolling
    assert rolling is not None
    updates = {repair.target: text(repair.update) for repair in rolling.repairs}
    d = "(mean.old - mean.new)"
    assert updates["m2"] == f"m2.old + {d} * (2 * m2_0.old + {d} * count.old)"
    assert updates["m2_0"] == f"m2_0.old + {d} * count.old"


def test_refusals_say_why() -> None:
    (refusal,) = fuse(chains.entropy_plain()).refusals
    assert refusal.target == "s_sum"
    assert "the chain has nan" in refusal.reason  # 0 * log(0), where the loop's p has not underflowed yet

    w = chains.Writer(i=None, j=40)
    x = w.input("x", "ij")
    m = w.reduce("m", "i", "max", "j", x)
    w.reduce("y", "i", "add", "j", f("sin", chains.sub(x, m)))
    (refusal,) = fuse(w.chain("y")).refusals
    assert "no law says how sin follows" in refusal.reason
    assert fuse(w.chain("y")).stages[1].why.startswith("y cannot follow m")


def test_negative_factors_do_not_pass_through_a_maximum() -> None:
    w = chains.Writer(i=None, j=40)
    x = w.input("x", "ij")
    s = w.reduce("s", "i", "add", "j", x)
    w.reduce("y", "i", "max", "j", chains.mul(chains.square(x), s))
    fusion = fuse(w.chain("y"))
    assert "sign is not known" in fusion.refusals[0].reason
    agree(fusion.source, fusion, arrays_for(fusion.source), 8, 2)


def test_states_merge_associatively_with_a_neutral_one() -> None:
    for name in ("attention", "entropy", "weighted_variance", "norm_linear"):
        chain = ALL[name][0]()
        fusion = fuse(chain)
        (stage,) = fusion.stages
        assert stage.rolling is not None
        assert stage.split is not None
        a, b, c, neutral, env, space = states(fusion, arrays_for(chain))
        left = merge(stage.split, merge(stage.split, a, b, env, space), c, env, space)
        right = merge(stage.split, a, merge(stage.split, b, c, env, space), env, space)
        for key in left:
            np.testing.assert_allclose(left[key].data, right[key].data, rtol=1e-9, atol=1e-9)
            for both in (merge(stage.split, a, neutral, env, space), merge(stage.split, neutral, a, env, space)):
                np.testing.assert_allclose(both[key].data, a[key].data, rtol=1e-12, atol=1e-12)


def states(fusion: Fusion, arrays: Mapping[str, Array]):
    from covan_mlir.fred.interpret import Space, inputs_of, sizes_of
    from covan_mlir.fred.run import run_part

    rolling = fusion.stages[0].rolling
    assert rolling is not None
    space = Space(sizes_of(fusion.chain, arrays), {}, "f64")
    env: Env = inputs_of(fusion.chain, arrays, space)
    parts = [run_part(rolling, env, space, [slice(k, k + 8)]) for k in (0, 8, 16)]
    return (*parts, initial_state(rolling, space), env, space)


def test_answers_are_kept() -> None:
    assert fuse(chains.attention()) is fuse(chains.attention())
    assert fuse(chains.attention()) is not fuse(chains.attention(n=41))


def test_precision_detours_are_one_precision() -> None:
    narrow, wide = fuse(chains.variance_by_import()), fuse(chains.variance_by_import(), narrow=False)
    assert {step.dtype for step in narrow.chain.steps} == {"f32"}
    assert {step.dtype for step in wide.chain.reductions} == {"f64"}
    assert not any(isinstance(s.expr, Apply) and s.expr.op == "arith.extf" for s in narrow.chain.steps)


def test_traces_are_kept() -> None:
    from dataclasses import replace

    chain = chains.softmax()
    steps = tuple(replace(step, trace=frozenset({k})) for k, step in enumerate(chain.steps))
    fusion = fuse(Chain(chain.axes, chain.inputs, steps, chain.outputs))
    performed = set().union(*(step.trace for step in fusion.chain.steps))
    assert performed == set(range(len(steps)))


@pytest.mark.parametrize("seed", range(4))
def test_reasons_do_not_depend_on_the_process(seed: int) -> None:
    """What a compilation tells is derived again, in another process."""
    told = f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from covan_mlir.fred.fuse import fuse
        from plain_chains import pooled_group_norm
        print(fuse(pooled_group_norm()).stages[1].why)
    """
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    result = run([sys.executable, "-c", dedent(told)], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "p needs s, a reduction over c, j"
