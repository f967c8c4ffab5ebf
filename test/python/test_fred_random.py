"""Chains that nobody wrote down: whatever comes out of fusion computes what the chain computes."""

from __future__ import annotations

import numpy as np
import plain_chains as chains
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from covan_mlir.fred.algebra import compare, f, select
from covan_mlir.fred.chain import Chain, Combine
from covan_mlir.fred.expression import Const, Expr
from covan_mlir.fred.formulas import text_of
from covan_mlir.fred.fuse import fuse
from covan_mlir.fred.interpret import interpret
from covan_mlir.fred.run import run_fusion


@st.composite
def made_chains(draw: st.DrawFn) -> Chain:
    """Two to four reductions over one axis, each of an expression over two inputs and the statistics before it."""
    w = chains.Writer(i=3, j=draw(st.sampled_from([7, 33])))
    x, v = w.input("x", "ij"), w.input("v", "ij")
    statistics: list[Expr] = []

    def centred(e: Expr) -> Expr:
        return chains.sub(e, draw(st.sampled_from(statistics)))

    def scaled(e: Expr) -> Expr:
        floor = f("maximumf", f("absf", draw(st.sampled_from(statistics))), w.number(0.5))
        return chains.div(e, floor)

    def element(depth: int) -> Expr:
        kind = draw(st.integers(0, 9 if depth else 1))
        if kind == 0 or not depth:
            return x
        if kind == 1:
            return v
        inner = element(depth - 1)
        if kind in (2, 3) and statistics:
            return centred(inner)
        if kind == 4 and statistics:
            return scaled(inner)
        if kind == 5:
            bounded = f("minimumf", inner, w.number(3.0)) if not statistics else inner
            return chains.exp(chains.mul(bounded, w.number(0.25)))
        if kind == 6:
            return chains.square(inner)
        if kind == 7:
            return f("absf", inner)
        if kind == 8:
            return chains.mul(inner, draw(st.sampled_from([x, v, w.number(0.5)])))
        return select(compare("ogt", v, Const(0.0, "f32")), inner, w.number(0.0))

    outputs = []
    for k in range(draw(st.integers(2, 4))):
        combine: Combine = draw(st.sampled_from(["add", "add", "max", "min"]))
        value = w.reduce(f"r{k}", "i", combine, "j", element(draw(st.integers(0, 3))))
        outputs.append(f"r{k}")
        statistics.append(value)
        if draw(st.booleans()) and combine == "add":
            statistics.append(w.map(f"mean{k}", "i", chains.div(value, w.size("j"))))
    return w.chain(*outputs)


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(chain=made_chains(), block=st.sampled_from([1, 4, 16]), parts=st.sampled_from([1, 3]), seed=st.integers(0, 99))
def test_fusion_computes_the_chain(chain: Chain, block: int, parts: int, seed: int) -> None:
    fusion = fuse(chain)
    note("\n".join(text_of(step) for step in fusion.chain.steps))
    note(str([(stage.reductions, stage.why) for stage in fusion.stages]))
    assert all(certificate.result == "proved" for certificate in fusion.certificates)
    rng = np.random.default_rng(seed)
    arrays = {value.name: rng.normal(size=[chain.sizes[a] for a in value.axes]) for value in chain.inputs}
    expected = interpret(chain, arrays, "f64")
    got = run_fusion(fusion, arrays, block, parts, "f64")
    for name in chain.outputs:
        size = np.nanmax(np.abs(expected[name]), initial=1.0, where=np.isfinite(expected[name]))
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-6, atol=1e-8 * size, err_msg=name)


def test_many_of_them_fuse() -> None:
    fused = dependent = 0

    @settings(max_examples=40, suppress_health_check=list(HealthCheck))
    @given(chain=made_chains())
    def count(chain: Chain) -> None:
        nonlocal fused, dependent
        fusion = fuse(chain)
        waits = any(chain.depends(r.name) & {s.name for s in chain.reductions} for r in chain.reductions)
        dependent += waits
        fused += waits and len(fusion.stages) == 1

    count()
    assert fused * 2 >= dependent, (fused, dependent)
