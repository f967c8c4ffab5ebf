"""Structures: flattening agrees with torch's pytrees, and survives JSON."""

from __future__ import annotations

import collections
import json
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils import _pytree as torch_pytree

from covan_mlir.artifacts import pytree
from covan_mlir.artifacts.schema import AnyTree

Pair = collections.namedtuple("Pair", ["left", "right"])

leaves = st.one_of(st.integers(), st.none(), st.text(max_size=3), st.builds(lambda: torch.zeros(1)))
keys = st.one_of(st.text(max_size=3), st.integers())


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    mapping = st.dictionaries(keys, inner, max_size=3)
    return st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        mapping,
        mapping.map(collections.OrderedDict),
        mapping.map(lambda d: collections.defaultdict(list, d)),
        st.lists(inner, max_size=3).map(collections.deque),
        st.builds(Pair, inner, inner),
    )


trees = st.recursive(leaves, containers, max_leaves=12)


@given(trees)
def test_leaves_are_torchs(value: Any) -> None:
    mine, tree = pytree.flatten(value)
    theirs = torch_pytree.tree_leaves(value)
    assert [id(leaf) for leaf in mine] == [id(leaf) for leaf in theirs]
    assert tree.leaf_count == len(mine)


@given(trees)
def test_round_trip_through_json(value: Any) -> None:
    flat, tree = pytree.flatten(value)
    stored = json.loads(json.dumps(msgspec.to_builtins(tree.stored())))
    again = pytree.Tree.of(msgspec.convert(stored, AnyTree))  # type: ignore[arg-type]
    assert again == tree
    rebuilt = pytree.unflatten(again, flat)
    assert torch_pytree.tree_structure(rebuilt) == torch_pytree.tree_structure(value)
    assert [id(leaf) for leaf in torch_pytree.tree_leaves(rebuilt)] == [id(leaf) for leaf in flat]


@given(trees)
def test_flatten_like_accepts_its_own_structure(value: Any) -> None:
    flat, tree = pytree.flatten(value)
    assert [id(leaf) for leaf in pytree.flatten_like(tree, value, "x")] == [id(leaf) for leaf in flat]


@pytest.mark.parametrize(
    ("example", "value", "message"),
    [
        ((1, 2), (1,), r"x has 1 elements; expected 2"),
        ({"a": 1}, {"b": 1}, r"x has keys \['b'\]; expected \['a'\]"),
        ({"a": [1, (2,)]}, {"a": [1, 2]}, r"x\['a'\]\[1\] is a int; expected a tuple of 1"),
        ([1], {"a": 1}, r"x is a dict; expected a list"),
    ],
)
def test_mismatch_names_the_place(example: Any, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pytree.flatten_like(pytree.flatten(example)[1], value, "x")


def test_unknown_container_falls_back_to_a_dict(caplog: pytest.LogCaptureFixture) -> None:
    tree = pytree.Tree("custom", (pytree.LEAF, pytree.LEAF), (), "nowhere.Output", json.dumps(["a", "b"]))
    assert pytree.unflatten(tree, [1, 2]) == {"a": 1, "b": 2}
    assert "import the library that defines it" in caplog.text
