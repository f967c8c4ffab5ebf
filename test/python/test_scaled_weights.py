"""Factors of sums that are multiplied with the weights ahead of time: which are, and that it changes no result."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from dense_chains import MACHINE, Arrays, arrays_of, convolution, f, near
from oracle import assert_same
from plain_chains import Writer
from torch import nn

import covan_mlir
from covan_mlir import CompileOptions
from covan_mlir.fred.chain import Chain, Map
from covan_mlir.fred.expression import Expr, Read, rebuild
from covan_mlir.fred.interpret import interpret
from covan_mlir.fred.scaled_weights import scaled
from covan_mlir.lowering.kernels.choice import Chooser
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.select import Selection


def weights(chain: Chain, *names: str) -> Chain:
    """The chain with inputs that are the same at every call."""
    inputs = tuple(dataclasses.replace(value, weight=value.name in names) for value in chain.inputs)
    return dataclasses.replace(chain, inputs=inputs)


def normalised(chain: Chain, axes: str) -> Chain:
    """A convolution whose sums are multiplied before the bias is added."""
    w = Writer("f32", **chain.known_sizes)
    scale = w.input("scale", axes)
    (total,) = chain.reductions
    factor = Map("v", total.axes, f("arith.mulf", Read(total.name, "f32"), scale), "f32")

    def behind(expr: Expr) -> Expr:
        return Read("v", "f32") if expr == Read(total.name, "f32") else expr

    steps = [dataclasses.replace(step, expr=rebuild(step.expr, behind)) for step in chain.steps if step != total]
    inputs = (*chain.inputs, dataclasses.replace(w.chain("scale").inputs[0], weight=True))
    return weights(dataclasses.replace(chain, inputs=inputs, steps=(total, factor, *steps)), "f", "scale")


CASES = {
    "3x3": normalised(convolution(16, 32, (3, 3), (14, 14)), "k"),
    "in groups, strided": normalised(convolution(32, 64, (3, 3), (9, 9), stride=2, groups=4), "gk"),
    "depthwise": normalised(convolution(32, 32, (3, 3), (14, 14), groups=32), "g"),
}


def multiplied(chain: Chain, arrays: Arrays) -> Arrays:
    """Inputs of the chain whose weights are scaled."""
    given = dict(arrays)
    for pair in scaled(chain).weights:
        step = Chain(chain.axes, (pair.weight, pair.factor), (pair.step,), (pair.name,))
        given |= interpret(step, {name: given[name] for name in (pair.weight.name, pair.factor.name)})
    return {value.name: given[value.name] for value in scaled(chain).chain.inputs}


@pytest.mark.parametrize("name", CASES)
def test_factors_are_in_the_weights(name: str) -> None:
    chain = CASES[name]
    parts = scaled(chain)
    assert [pair.name for pair in parts.weights] == ["f_scaled"]
    assert [value.name for value in parts.chain.inputs if value.weight] == ["f_scaled"]
    assert len(parts.chain.steps) == len(chain.steps) - 1
    arrays = arrays_of(chain, 1)
    (terms,) = [np.prod([chain.known_sizes[axis] for axis in step.over]) for step in chain.reductions]
    (output,) = chain.outputs
    near(
        interpret(parts.chain, multiplied(chain, arrays))[output],
        interpret(chain, arrays, "f64")[output], int(terms), "f32",
    )  # fmt: skip


def product(*, scale: str = "n", behind: bool = False, given: bool = False, beside: bool = False) -> Chain:
    w = Writer("f32", m=4, k=8, n=6)
    a, b, by = w.input("a", "mk"), w.input("b", "nk"), w.input("scale", scale)
    w.reduce("s", "mn", "add", "k", f("arith.mulf", a, b))
    total = w.read("s")
    scaled_sum = f("arith.mulf", f("arith.addf", total, total) if behind else total, by)
    w.map("y", "mn", f("arith.addf", scaled_sum, total) if beside else scaled_sum)
    return weights(w.chain(*(("s", "y") if given else ("y",))), "b", "scale")


def test_a_result_that_is_the_sum_keeps_its_name() -> None:
    parts = scaled(product())
    assert [step.name for step in parts.chain.steps] == ["y"]
    assert parts.chain.reductions


@pytest.mark.parametrize(
    "chain",
    [
        product(scale="m"),  # the weight has no such axis
        product(behind=True),  # the sum is read twice
        product(beside=True),  # so is it here, and once as it is
        product(given=True),  # the sum is a result
        weights(product(), "b"),  # the factor varies
        weights(product(), "scale"),  # the matrix varies
    ],
)
def test_others_stay_behind_the_sums(chain: Chain) -> None:
    assert scaled(chain).chain == chain
    assert not scaled(chain).weights


def test_what_was_done_is_told_of_the_sum() -> None:
    chain = product()
    steps = tuple(dataclasses.replace(step, trace=frozenset({n})) for n, step in enumerate(chain.steps))
    (step,) = scaled(dataclasses.replace(chain, steps=steps)).chain.steps
    assert step.trace == {0, 1}


@pytest.mark.parametrize("name", CASES)
def test_kernels_are_called_with_weights_and_factors(name: str) -> None:
    kernel = Chooser(CpuTarget(MACHINE), always=True).kernel(CASES[name])
    assert isinstance(kernel, Selection)
    assert [operand.name for operand in kernel.executable.inputs] == [value.name for value in CASES[name].inputs]
    (preparation,) = kernel.executable.preparations
    assert preparation.sources == ("f", "scale")


def test_a_network_with_batch_norms() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(8, 16, 3, stride=2, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False), nn.BatchNorm2d(16), nn.ReLU6(),
        nn.Conv2d(16, 32, 3, padding=1, groups=2, bias=False), nn.BatchNorm2d(32),
        nn.Conv2d(32, 24, 1, bias=False), nn.BatchNorm2d(24),
    ).eval()  # fmt: skip
    for module in model:
        if isinstance(module, nn.BatchNorm2d):
            for values in (module.running_mean, module.weight.data, module.bias.data):
                assert values is not None
                values.normal_()
            assert module.running_var is not None
            module.running_var.uniform_(0.5, 2)
    x = torch.randn(1, 8, 31, 31)
    exe = covan_mlir.compile_module(model, (x,), options=CompileOptions(fuse_reductions="always", cache=False))
    assert_same(exe(x), model(x))
    told = [record.chain[0] for record in exe.lineage.fusions if record.kernel]
    assert len(told) == 4
    assert all("_scaled[" in line for line in told)
    verdict = exe.verify()
    assert verdict, verdict
