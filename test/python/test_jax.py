"""JAX functions: compiled, told of by operation and line, verified; against JAX."""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from command_line import said
from jax import export as jax_export
from jax import lax
from jax_programs import ALL, Programs
from limits import part, some

import covan_mlir
from covan_mlir.errors import ExportError, InputError
from covan_mlir.frontend.actions import distinct, source_actions
from covan_mlir.frontend.frontends import capture
from covan_mlir.frontend.stablehlo import registry

RNG = np.random.default_rng(0)
PARAMS = [
    {"w": RNG.standard_normal((16, 24), np.float32), "b": np.ones(24, np.float32)},
    {"w": RNG.standard_normal((24, 3), np.float32), "b": np.zeros(3, np.float32)},
]
X = RNG.standard_normal((4, 16), np.float32)


def network(params: Any, x: Any) -> dict[str, Any]:
    for index, layer in enumerate(params):
        with jax.named_scope(f"layer_{index}"):
            x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return {"probabilities": jax.nn.softmax(x), "logits": (x, None)}


def close(result: Any, expected: Any, tolerance: float = 2e-5) -> None:
    """Same structure, types and shapes, and values within a tolerance."""
    plain = jax.tree_util.tree_map(lambda v: v if isinstance(v, np.ndarray) else np.asarray(v), result)
    assert jax.tree_util.tree_structure(plain) == jax.tree_util.tree_structure(expected)
    for own, theirs in zip(jax.tree_util.tree_leaves(plain), jax.tree_util.tree_leaves(expected), strict=True):
        wanted = np.asarray(theirs)
        assert own.dtype == wanted.dtype
        wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
        few = 1e-2 if wanted.dtype.itemsize == 2 else tolerance
        np.testing.assert_allclose(own.astype(wide), wanted.astype(wide), rtol=10 * few, atol=few)


@functools.cache
def compiled() -> covan_mlir.Executable:
    return covan_mlir.compile_module(jax.jit(network), (PARAMS, X))


def test_pytrees_in_and_out() -> None:
    close(compiled()(PARAMS, X), network(PARAMS, X))
    close(compiled()(jax.tree_util.tree_map(jnp.asarray, PARAMS), jnp.asarray(X)), network(PARAMS, X))
    with pytest.raises(InputError, match=r"argument x has size 2 on axis 0; expected float32\[4, 16\]"):
        compiled()(PARAMS, X[:2])


def test_operations_are_actions_with_scopes_lines_and_fates() -> None:
    lineage = compiled().lineage
    products = [a for a in lineage.actions if a.op == "stablehlo.dot_general"]
    assert [(a.name, a.module) for a in products] == [
        ("layer_0/dot_general", "layer_0"),
        ("layer_1/dot_general", "layer_1"),
    ]
    first = network.__code__.co_firstlineno
    assert {a.line for a in products} == {f"{__file__}:{first + 3}"}
    kinds = {a.name: lineage.fate(a).kind for a in lineage.actions if a.translated}
    assert kinds["layer_0/dot_general"] == kinds["reduce_max"] == kinds["exp"] == "dispatched"
    assert kinds["layer_0/relu/max"] == "folded"  # a zero in each place
    assert kinds["max_1"] == "merged"  # the larger of minus infinity and a number
    assert {site.id for site in lineage.where("layer_1")} == {site.id for site in lineage.where("layer_1/dot_general")}


def test_the_lineage_holds() -> None:
    verdict = compiled().verify()
    assert verdict, verdict


def test_every_tensor_is_compared_and_the_results_with_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = compiled().compare(PARAMS, X)
    assert comparison
    assert not comparison.notes
    monkeypatch.setitem(registry._OPERATIONS, "stablehlo.tanh", lambda call: torch.sin(call.tensor(0)))
    comparison = covan_mlir.compile_module(jnp.tanh, (jnp.asarray(X),)).compare(X)
    assert any("the translation of the model is wrong" in note for note in comparison.notes)


def test_what_a_function_closes_over_is_a_weight() -> None:
    exe = covan_mlir.compile_module(jax.jit(functools.partial(network, PARAMS)), (X,))
    assert len(exe.signature.inputs) == 1
    close(exe(X), network(PARAMS, X))


def test_open_sizes() -> None:
    exe = covan_mlir.compile_module(network, (PARAMS, jnp.asarray(X)), dynamic_shapes=(None, "batch, ..."))
    for rows in (2, 9):
        x = RNG.standard_normal((rows, 16), np.float32)
        close(exe(PARAMS, x), network(PARAMS, x))
    verdict = exe.verify()
    assert verdict, verdict


def test_what_was_exported(tmp_path: Path) -> None:
    exported = jax_export.export(jax.jit(network))(PARAMS, X)
    (tmp_path / "model.jax").write_bytes(exported.serialize())
    for model in (exported, tmp_path / "model.jax"):
        captured = capture(model, (), None, None)
        own = captured.program.module()(jax.tree_util.tree_map(torch.from_numpy, PARAMS), torch.from_numpy(X))
        close(own["probabilities"].numpy(), network(PARAMS, X)["probabilities"])
        assert next(iter(distinct(source_actions(captured.program.graph)))).name == "layer_0/dot_general"


class Pair(NamedTuple):
    first: Any
    second: Any


@jax.tree_util.register_pytree_node_class
class Scaled:
    """A container that only JAX knows."""

    def __init__(self, values: Any, by: float) -> None:
        self.values, self.by = values, by

    def tree_flatten(self) -> tuple[Any, Any]:
        return (self.values,), self.by

    @classmethod
    def tree_unflatten(cls, by: Any, children: Any) -> Scaled:
        return cls(*children, by)


def test_containers_numbers_and_arguments_that_are_not_read() -> None:
    def function(scaled: Scaled, pair: Pair, unread: Any, by: Any) -> Any:
        return Pair(scaled.values * scaled.by + by, [pair.second["a"]])

    args = (Scaled(jnp.asarray(X), 3.0), Pair(jnp.ones(2), {"a": jnp.zeros(2), "b": None}), jnp.ones(5), 2.5)
    exe = covan_mlir.compile_module(function, args)
    result = exe(*args[:3], 1.5)
    assert isinstance(result, Pair)
    np.testing.assert_allclose(result.first, X * 3 + 1.5, rtol=1e-6)
    np.testing.assert_array_equal(result.second[0], np.zeros(2))


def _whole(programs: Programs) -> Any:
    return lambda *args: {name: programs[name][0](*own) for name, own in zip(programs, args, strict=True)}


@pytest.mark.parametrize("kind", ALL)
def test_functions_translated(kind: str) -> None:
    """All functions of a kind in one program, its translation run by PyTorch."""
    programs = ALL[kind]
    args = tuple(own for _, own in programs.values())
    captured = capture(jax.jit(_whole(programs)), args, None, None)
    given, named = captured.program.example_inputs
    results = captured.program.module()(*given, **named)
    expected = jax.jit(_whole(programs))(*args)
    for name in programs:
        plain = jax.tree_util.tree_map(_array, results[name])
        try:
            close(plain, expected[name], 1e-4)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


def _array(tensor: torch.Tensor) -> Any:
    if tensor.dtype is torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(jnp.bfloat16)
    return tensor.numpy()


@pytest.mark.parametrize("kind", part(ALL, ("sums",)))
def test_functions_compiled(kind: str) -> None:
    """Some of them, compiled; and the lineage holds."""
    programs = dict(some([*ALL[kind].items()], 4))
    args = tuple(own for _, own in programs.values())
    exe = covan_mlir.compile_module(jax.jit(_whole(programs)), args)
    close(exe(*args), jax.jit(_whole(programs))(*args), 1e-4)
    verdict = exe.verify()
    assert verdict, verdict


@pytest.mark.parametrize("name", ["while", "scan"])
def test_loops_compiled(name: str) -> None:
    function, args = ALL["control"][name]
    exe = covan_mlir.compile_module(jax.jit(function), args)
    close(exe(*args), jax.jit(function)(*args), 1e-4)
    verdict = exe.verify()
    assert verdict, verdict


def _raises(x: Any) -> Any:
    if x.sum() > 0:  # a value that is asked for
        return x
    return -x


def test_functions_that_are_refused() -> None:
    x = jnp.ones(3)
    line = _raises.__code__.co_firstlineno + 1
    cases: list[tuple[Any, tuple[Any, ...], str]] = [
        (lambda x: jnp.linalg.eig(x * jnp.eye(3)), (x,), r"no translation: .*custom_call @lapack_sgeev"),
        (_raises, (x,), rf"test_jax.py:{line}: JAX does not export _raises: TracerBoolConversionError"),
        (jax.jit(lambda x, n: x * n, static_argnums=1), (x, 3), "bind static arguments with functools.partial"),
        (lambda x: jax.debug.print("{}", x), (x,), "JAX does not export .*callbacks"),
        (lambda k: jax.random.normal(k, (3,)), (jax.random.key(0),), "pass keys as arrays of numbers"),
    ]
    for function, args, message in cases:
        with pytest.raises((ExportError, InputError), match=message) as told:
            capture(function, args, None, None)
        assert len(str(told.value).splitlines()) == 1


def test_damaged_artifacts(tmp_path: Path) -> None:
    data = jax_export.export(jax.jit(jnp.tanh))(X).serialize()
    for index, damaged in enumerate((b"", b"nothing", data[: len(data) // 2], bytes(255 - byte for byte in data))):
        path = tmp_path / f"{index}.jax"
        path.write_bytes(damaged)
        with pytest.raises(ExportError) as told:
            capture(path, (), None, None)
        assert len(str(told.value).splitlines()) == 1
    with pytest.raises(ExportError, match="No such file"):
        capture(tmp_path / "nowhere.jax", (), None, None)


def test_loops_of_layers_are_written_out(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    layers = jnp.asarray(RNG.standard_normal((6, 8, 8), np.float32))

    def deep(x: Any) -> Any:
        return lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, layers)[0]

    captured = capture(deep, (jnp.ones((2, 8)),), None, None)
    targets = [node.target for node in captured.program.graph.nodes if node.op == "call_function"]
    assert targets.count(torch.ops.aten.matmul.default) == 6
    assert torch.ops.higher_order.while_loop not in targets


FACTORY = """
import jax
import numpy as np

def factory():
    def net(x):
        with jax.named_scope("head"):
            return jax.nn.softmax(x * 2)
    return jax.jit(net), (np.ones((4, 16), np.float32),)
"""


def test_the_command_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "net.py").write_text(FACTORY)
    (here / "net.jax").write_bytes(jax_export.export(jax.jit(jnp.tanh))(X).serialize())
    said(capsys, "compile", "net.py:factory", "-o", "net.covan")
    assert "head/exp" in said(capsys, "explain", "net.covan")
    assert "within tolerance" in said(capsys, "compare", "net.covan", "--model", "net.py:factory")
    assert "stablehlo.tanh" in said(capsys, "info", "net.jax")
    assert "symbolic_args_specs" in said(capsys, "compile", "net.py:factory", "--dynamic", "x:0", code=2)
