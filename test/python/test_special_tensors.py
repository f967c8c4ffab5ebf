"""Arguments that are tensors of an unusual kind, or share memory: as in eager, or an error that names them."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from oracle import assert_same
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import covan_mlir
from covan_mlir import Executable, InputError


@pytest.fixture(scope="module")
def doubled() -> Executable:
    return covan_mlir.compile_module(lambda x: x * 2, (torch.ones(3, 4),))


@pytest.fixture(scope="module")
def masked() -> Executable:
    return covan_mlir.compile_module(lambda mask: torch.where(mask, 1.0, 5.0), (torch.ones(8, dtype=torch.bool),))


@pytest.fixture(scope="module")
def added() -> Executable:
    """Changes its first argument in place, and returns what it then reads of the second."""
    return covan_mlir.compile_module(_add, (torch.ones(4), torch.ones(4)))


def _add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return y * 2


class Subclass(torch.Tensor):
    """Without behaviour of its own."""


def _inference() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(3, 4)


RIGHT: dict[str, Callable[[], Any]] = {
    "parameter": lambda: nn.Parameter(torch.ones(3, 4)),
    "inference tensor": _inference,
    "negative view": lambda: torch._neg_view(torch.ones(3, 4)),
    "subclass": lambda: torch.ones(3, 4).as_subclass(Subclass),
    "expanded": lambda: torch.ones(1, 4).expand(3, 4),
    "read-only array": lambda: np.broadcast_to(np.float32(1), (3, 4)),
}
REFUSED: dict[str, Callable[[], Any]] = {
    "fake": lambda: FakeTensorMode().from_tensor(torch.ones(3, 4)),
    "functional": lambda: torch._to_functional_tensor(torch.ones(3, 4)),
    "sparse": lambda: torch.ones(3, 4).to_sparse(),
    "sparse rows": lambda: torch.ones(3, 4).to_sparse_csr(),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(4)] * 3),
    "jagged": lambda: torch.nested.nested_tensor([torch.ones(4)] * 3, layout=torch.jagged),
    "mkldnn": lambda: torch.ones(3, 4).to_mkldnn(),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(3, 4), 1.0, 0, torch.qint8),
    "meta": lambda: torch.ones(3, 4, device="meta"),
    "zero": lambda: torch._efficientzerotensor((3, 4)),
    "masked array": lambda: np.ma.masked_array(np.ones((3, 4), np.float32), mask=np.eye(3, 4)),
    "big-endian": lambda: np.ones((3, 4), ">f4"),
    "list": lambda: [[1.0] * 4] * 3,
    "like a tensor": lambda: type("Like", (), {"shape": (3, 4), "dtype": np.dtype("float32")})(),
    "None": lambda: None,
}


@pytest.mark.parametrize("kind", RIGHT)
def test_right(doubled: Executable, kind: str) -> None:
    value = RIGHT[kind]()
    assert_same(torch.as_tensor(doubled(value)), torch.full((3, 4), -2.0 if "negative" in kind else 2.0))


@pytest.mark.parametrize("kind", REFUSED)
def test_refused(doubled: Executable, kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = REFUSED[kind]()
        with pytest.raises(InputError, match="x"):
            doubled(value)
    assert issubclass(InputError, TypeError)


def test_tensors_of_function_transforms_are_refused(doubled: Executable) -> None:
    for transform in (torch.func.vmap, torch.func.grad):
        with pytest.raises(InputError, match="argument x is"):
            transform(doubled)(torch.ones(2, 3, 4) if transform is torch.func.vmap else torch.ones(3, 4))


def test_bytes_that_are_neither_true_nor_false(masked: Executable) -> None:
    """Any byte but 0 is true, as for numpy and torch."""
    integers = np.array([0, 1, 2, 3, 128, 254, 255, 0], np.uint8)
    expected = torch.where(torch.from_numpy(integers) != 0, 1.0, 5.0)
    assert_same(torch.as_tensor(masked(integers.view(np.bool_))), expected)
    assert_same(masked(torch.from_numpy(integers).view(torch.bool)), expected)
    strided = torch.from_numpy(np.repeat(integers, 2)).view(torch.bool)[::2]
    assert_same(masked(strided), expected)


def test_arguments_that_share_memory_with_what_is_changed(added: Executable) -> None:
    base = torch.zeros(8)
    for x, y in ((base[:4], base[:4]), (base[:4], base[2:6]), (base[::2], base[2:6])):
        with pytest.raises(InputError, match=r"argument [xy] and argument [xy] share memory"):
            added(x, y)
        with pytest.raises(InputError, match="share memory"):
            added(x.numpy(), y.numpy())
    assert_same(base, torch.zeros(8))


def test_arguments_side_by_side_in_one_memory(added: Executable) -> None:
    """No byte of one belongs to the other, though they lie between each other."""
    for x, y in (([0, 4, 1], [4, 8, 1]), ([0, 8, 2], [1, 8, 2])):
        base, own = torch.arange(8.0), torch.arange(8.0)
        expected = _add(base[slice(*x)], base[slice(*y)])
        assert_same(added(own[slice(*x)], own[slice(*y)]), expected)
        assert_same(own, base)


def test_what_is_changed_must_be_writable(added: Executable) -> None:
    with pytest.raises(InputError, match="argument x is changed in place, but it is read-only"):
        added(np.broadcast_to(np.float32(1), (4,)), np.ones(4, np.float32))
    with pytest.raises(InputError, match="several of its elements lie in one place"):
        added(torch.ones(1).expand(4), torch.ones(4))
    with torch.inference_mode():
        inferred = torch.ones(4)
    with pytest.raises(InputError, match="inference mode"):
        added(inferred, torch.ones(4))


@pytest.mark.parametrize("keep", [pickle.dumps, copy.copy, copy.deepcopy, lambda exe: torch.save(exe, io.BytesIO())])
def test_what_would_pickle_an_executable_is_told_to_save_it(doubled: Executable, keep: Callable[[Any], Any]) -> None:
    for holder in (doubled, [doubled], nn.Module()):
        if isinstance(holder, nn.Module):
            holder.inner = doubled
        if keep is copy.copy and holder is not doubled:
            continue  # which leaves what is inside as it is
        with pytest.raises(InputError, match=r"write it with save\(path\), and read it with covan_mlir.load\(path\)"):
            keep(holder)


def test_an_argument_that_is_the_models_own_state() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return x * 2

    model = Counter()
    exe = covan_mlir.compile_module(model, (torch.ones(4),))
    assert isinstance(model.count, torch.Tensor)
    with pytest.raises(InputError, match="the model's buffer count"):
        exe(model.count)
    assert_same(exe(model.count.clone()), torch.zeros(4))
