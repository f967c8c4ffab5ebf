"""Eager PyTorch as the oracle: are two results the same, as far as floating point allows?"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

ULPS_PER_OP = 4.0
"""Rounding errors granted to each operation on the longest path, in units of the type's epsilon.

A reordered sum of K terms differs by about sqrt(K) epsilon in the mean; 4 covers K in the thousands where
operations that round once, or not at all, stand between the reductions."""


def tolerance(dtype: torch.dtype, depth: int = 1) -> float:
    """Relative tolerance for `depth` dependent operations in `dtype`; zero where arithmetic is exact.

    Errors of a chain are taken to add up, not to multiply: networks with normalisation neither blow them up
    nor damp them.
    """
    if not (dtype.is_floating_point or dtype.is_complex):
        return 0.0
    return ULPS_PER_OP * torch.finfo(dtype).eps * max(depth, 1)


def depth_of(program: torch.export.ExportedProgram) -> int:
    """Calls on the longest path through an exported graph."""
    depths: dict[torch.fx.Node, int] = {}
    for node in program.graph.nodes:
        below = max((depths[n] for n in node.all_input_nodes), default=0)
        depths[node] = below + (node.op == "call_function")
    return max(depths.values(), default=0)


def assert_same(actual: Any, expected: Any, *, depth: int = 1, rtol: float | None = None) -> None:
    """Assert that two results agree: structure, types, shapes, dtypes and values.

    Results are pytrees: tensors, tuples, dicts, output dataclasses, registered caches. A floating-point
    tensor agrees if its NaNs and infinities stand where they should, and everything else is within `rtol`
    (default `tolerance(dtype, depth)`) of the expected value plus the expected tensor's largest one: an
    element that cancels to almost zero carries the error of what it was made of. Integers and booleans agree
    exactly.

    Raises:
        AssertionError: naming the leaf, for instance `result['key_cache'][0]`, and its worst element.
    """
    got, got_spec = pytree.tree_flatten_with_path(actual)
    want, want_spec = pytree.tree_flatten_with_path(expected)
    assert type(actual) is type(expected), f"a {type(actual).__name__}, not a {type(expected).__name__}"
    assert got_spec == want_spec, f"structure {got_spec}, not {want_spec}"
    for (path, a), (_, e) in zip(got, want, strict=True):
        where = f"result{pytree.keystr(path)}"
        if isinstance(e, Tensor):
            assert isinstance(a, Tensor), f"{where}: a {type(a).__name__}, not a Tensor"
            _assert_tensors_same(where, a.detach(), e.detach(), depth, rtol)
        else:
            assert type(a) is type(e), f"{where}: a {type(a).__name__}, not a {type(e).__name__}"
            assert a == e, f"{where}: {a!r}, not {e!r}"


def max_error(actual: Any, expected: Any) -> float:
    """Largest absolute difference between finite floating-point elements of two results of one structure."""
    worst = 0.0
    for a, e in zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected), strict=True):
        if isinstance(e, Tensor) and (e.is_floating_point() or e.is_complex()):
            error = (_wide(a) - _wide(e)).abs()
            finite = error[error.isfinite()]
            worst = max(worst, float(finite.max()) if finite.numel() else 0.0)
    return worst


def _wide(t: Tensor) -> Tensor:
    """The values as float64, real and imaginary parts side by side."""
    t = t.detach().cpu()
    return (torch.view_as_real(t.resolve_conj()) if t.is_complex() else t).to(torch.float64)


def _assert_tensors_same(where: str, actual: Tensor, expected: Tensor, depth: int, rtol: float | None) -> None:
    assert actual.dtype == expected.dtype, f"{where}: {actual.dtype}, not {expected.dtype}"
    assert actual.shape == expected.shape, f"{where}: shape {tuple(actual.shape)}, not {tuple(expected.shape)}"
    if expected.numel() == 0:
        return
    if not (expected.dtype.is_floating_point or expected.dtype.is_complex):
        wrong = (actual != expected).nonzero()
        at = tuple(wrong[0].tolist()) if len(wrong) else ()
        message = f"{len(wrong)} elements differ, first at {at}: {actual[at]}, not {expected[at]}"
        assert not len(wrong), f"{where}: {message}"
        return

    a, e = _wide(actual), _wide(expected)
    for kind, actually, wanted in (
        ("NaN", a.isnan(), e.isnan()),
        ("+inf", a.isposinf(), e.isposinf()),
        ("-inf", a.isneginf(), e.isneginf()),
    ):
        wrong = (actually != wanted).nonzero()
        message = f"{len(wrong)} elements disagree on {kind}, first at {wrong[:1].tolist()}"
        assert not len(wrong), f"{where}: {message}"
    finite = e.isfinite()
    if not finite.any():
        return
    a, e = torch.where(finite, a, 0.0), torch.where(finite, e, 0.0)
    rtol = tolerance(expected.dtype, depth) if rtol is None else rtol
    error = (a - e).abs()
    excess = error - rtol * (e.abs() + e.abs().max())
    at = tuple(int(i) for i in torch.unravel_index(excess.argmax(), excess.shape))
    assert excess[at] <= 0, (
        f"{where}: {int((excess > 0).sum())} of {e.numel()} elements are off; worst at {at}: "
        f"{float(a[at]):.9g}, not {float(e[at]):.9g} (difference {float(error[at]):.3g}, rtol {rtol:.3g})"
    )
