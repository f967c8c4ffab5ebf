"""What kernels are weighed against: the compiler's own dispatches, on devices as data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dense_chains import MACHINE, arrays_of, convolution, f
from fred_chains import attention, row_cases
from plain_chains import Writer

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.interpret import interpret
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.cuda.compile import available
from covan_mlir.lowering.kernels.cuda.device import DEVICES
from covan_mlir.lowering.kernels.cuda.target import CudaTarget
from covan_mlir.lowering.kernels.dense.apart import rows_before, transposed_after
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.reductions.profitability import LEAST, Rates, compiled, does_not_pay
from covan_mlir.lowering.kernels.select import Selection, select

PLAIN = Rates(bandwidth=1e9, instructions=1e12, reducing=1e12, dispatch=1e-6)


def test_each_reduction_is_a_dispatch_that_reads_its_input_again() -> None:
    chain, _ = row_cases(8, 1000)["softmax"]
    read, row = 4 * 8 * 1000 / 1e9, 4 * 8 / 1e9
    # The maximum; the sum, which reads it; the quotients, which read both.
    expected = (read + row) + (read + 2 * row) + (2 * read + 2 * row) + 2e-6
    assert compiled(chain, PLAIN) == pytest.approx(expected, rel=1e-6)


def test_a_kernel_has_to_save_something() -> None:
    chain, _ = row_cases(8, 1000)["softmax"]
    theirs = compiled(chain, PLAIN)
    assert does_not_pay(chain, PLAIN, theirs - PLAIN.dispatch - 2 * LEAST) is None
    reason = does_not_pay(chain, PLAIN, theirs)
    assert reason is not None
    assert "2 dispatches of the compiler's own" in reason


def test_few_rows_leave_most_of_a_gpu_idle() -> None:
    chain, _ = row_cases(1, 100_000)["logsumexp"]
    device = DEVICES["sm_90a"]
    alone = compiled(chain, Rates(device.bandwidth, 1e15, 1e15, 0.0))
    assert compiled(chain, Rates(device.bandwidth, 1e15, 1e15, 0.0, 132)) == pytest.approx(132 * alone)


def weighted() -> Chain:
    """``softmax(x) @ v`` of twelve heads."""
    w = Writer("f32", h=12, i=197, j=197, e=64)
    x, v = w.input("x", "hij"), w.input("v", "hje")
    largest = w.reduce("m", "hi", "max", "j", x)
    powers = w.map("p", "hij", f("math.exp", f("arith.subf", x, largest)))
    shares = w.map("y", "hij", f("arith.divf", powers, w.reduce("l", "hi", "add", "j", powers)))
    w.reduce("o", "hie", "add", "j", f("arith.mulf", shares, v))
    return w.chain("o")


def test_rows_before_a_product_are_a_kernel_of_their_own() -> None:
    chain = weighted()
    rows, product = rows_before(chain)
    assert [step.name for step in rows.reductions] == ["m", "l"]
    assert product.product
    arrays = arrays_of(chain, 1)
    known = interpret(rows, {"x": arrays["x"]}, "f64")
    got = interpret(product, {"y": known["y"], "v": arrays["v"]}, "f64")["o"]
    np.testing.assert_array_equal(got, interpret(chain, arrays, "f64")["o"])
    refusal = select(chain, "together", CpuTarget(MACHINE))
    assert isinstance(refusal, Refusal)
    assert "predicted to take" in refusal.reason  # longer than apart, and than the compiler's own


def transposed() -> Chain:
    """A depthwise convolution of 3 x 3 whose activation lies with its channels last."""
    plain = convolution(256, 256, (3, 3), (56, 56), groups=256)
    *before, last = plain.steps
    return replace(plain, steps=(*before, replace(last, axes=("h", "w", "g"))))


def test_what_transposes_results_of_windows_is_a_dispatch_of_its_own() -> None:
    chain = transposed()
    windows, move = transposed_after(chain)
    assert {step.axes for step in windows.steps} == {("g", "h", "w")}
    arrays = arrays_of(chain, 1)
    known = interpret(windows, arrays, "f64")["y"]
    (name,) = move.outputs
    got = interpret(move, {"y": known}, "f64")[name]
    np.testing.assert_array_equal(got, interpret(chain, arrays, "f64")["y"])
    refusal = select(chain, "together", CpuTarget(MACHINE))
    assert isinstance(refusal, Refusal)
    assert "as one kernel" in refusal.reason
    assert isinstance(select(windows, "alone", CpuTarget(MACHINE)), Selection)
    assert transposed_after(windows) == (windows,)


def test_attention_is_not_taken_apart() -> None:
    chain = attention(2, 64, 64, 16, "plain")
    assert rows_before(chain) == (chain,)


@pytest.mark.skipif(not available(), reason="Triton is not installed (pip install covan-mlir[cuda])")
def test_what_pays_on_cuda() -> None:
    single, _ = row_cases(64, 100)["rms_norm"]
    target = CudaTarget(DEVICES["sm_80"])
    refusal = select(single, "fred_x", target)
    assert isinstance(refusal, Refusal)
    assert "it does not pay" in refusal.reason
    assert isinstance(select(single, "fred_x", target, always=True), Selection)
    attend = attention(2, 64, 64, 16, "causal", dtype="f16")
    assert isinstance(select(attend, "fred_y", target), Selection)
