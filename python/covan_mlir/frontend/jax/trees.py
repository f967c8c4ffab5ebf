"""Containers that JAX knows, and torch has to know as well: dataclasses, frozen dictionaries, states of optimisers."""

from __future__ import annotations

from typing import Any

import jax
import torch
from jax.tree_util import default_registry


def register_containers(value: Any) -> None:
    """Have torch take apart what JAX takes apart, in a value and what it holds.

    Named tuples, tuples, lists and dictionaries both know. A container that is known to torch already stays as it is.
    """
    known = torch.utils._pytree.SUPPORTED_NODES
    one_level = default_registry.flatten_one_level(value)
    if one_level is None:
        return
    children, _ = one_level
    kind = type(value)
    if kind not in known and not (isinstance(value, tuple) and hasattr(value, "_fields")) and value is not None:
        _register(kind)
    for child in children:
        register_containers(child)


def _register(kind: type) -> None:
    def flatten(value: Any) -> tuple[list[Any], Any]:
        level = default_registry.flatten_one_level(value)
        assert level is not None
        children, _ = level
        held = list(children)
        structure = jax.tree_util.tree_structure(value, is_leaf=lambda inner: inner is not value)
        return held, structure

    def unflatten(children: Any, structure: Any) -> Any:
        return jax.tree_util.tree_unflatten(structure, list(children))

    def with_keys(value: Any) -> tuple[list[tuple[Any, Any]], Any]:
        children, structure = flatten(value)
        return [(torch.utils._pytree.SequenceKey(index), child) for index, child in enumerate(children)], structure

    torch.utils._pytree.register_pytree_node(
        kind,
        flatten,
        unflatten,
        serialized_type_name=f"{kind.__module__}.{kind.__qualname__}",
        flatten_with_keys_fn=with_keys,
    )
