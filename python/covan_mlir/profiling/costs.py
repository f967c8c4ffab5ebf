"""What the parts of a lineage compute and move, by counting from their operators and types alone.

FLOPs: of a contraction two per product; of an elementwise operator one per element of its result, transcendental or
not; of a reduction one per element of what it reduces; of views, copies and indexing none. Bytes: of a site, what it
reads of other sites, arguments and weights, and what it writes that others read or the program returns.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from covan_mlir.artifacts.signature import evaluate
from covan_mlir.provenance import arguments
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.model import LineageData, Part, Site

_TYPE = re.compile(r"([a-z]+)(\d*)[^\[]*\[(.*)\]")
# fmt: off
_MOVES = frozenset({
    "clone", "_to_copy", "copy", "cat", "stack", "constant_pad_nd", "index", "index_select", "gather",
    "slice_scatter", "select_scatter", "scatter", "index_put", "embedding", "repeat", "flip", "roll", "full", "zeros",
    "ones", "empty", "arange", "full_like", "zeros_like", "ones_like", "scalar_tensor", "fill", "where",
    "convert_element_type", "contiguous", "expand_copy", "permute_copy", "view_copy", "lift_fresh_copy", "tril",
    "triu", "pad", "im2col", "col2im", "unfold", "_unsafe_index",
})
# fmt: on
# fmt: off
_REDUCTIONS = frozenset({
    "sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "prod", "any", "all", "var", "std", "var_mean",
    "std_mean", "logsumexp", "cumsum", "cumprod", "native_layer_norm", "native_group_norm", "native_batch_norm",
    "_native_batch_norm_legit", "_native_batch_norm_legit_no_training", "_softmax", "_log_softmax", "softmax",
    "log_softmax", "linalg_vector_norm", "norm", "nansum", "max_pool2d_with_indices", "avg_pool2d", "avg_pool1d",
    "_adaptive_avg_pool2d", "sort", "topk", "median", "count_nonzero",
})
# fmt: on
# How often a fused statistic goes over its elements: mean, variance, scale; maximum, exponential and sum, quotient.
_PASSES: Mapping[str, int] = {
    **dict.fromkeys(("var", "std", "var_mean", "std_mean", "_softmax", "_log_softmax", "softmax", "log_softmax"), 4),
    **dict.fromkeys(("native_layer_norm", "native_group_norm", "native_batch_norm"), 6),
}


@dataclass(frozen=True)
class _Tensor:
    shape: tuple[int, ...]
    width: float

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> float:
        return self.elements * self.width


class Costs:
    """Costs of one lineage's parts and sites.

    Args:
        symbols: what the symbols in its types stand for; sizes of which nothing is known count as one.
    """

    def __init__(self, lineage: LineageData, symbols: Mapping[str, int]) -> None:
        self._lineage = lineage
        self._symbols = symbols
        self._readers: dict[Operand, set[int]] = {}
        for part in lineage.parts.values():
            for operand in arguments.operands(part.args):
                self._readers.setdefault(operand, set()).add(part.id)
        self._returned = {int(name) for kind, name in lineage.results if kind == "p"}

    def flops(self, part: Part) -> float:
        """FLOPs of a part."""
        name = [*part.op.split("."), ""][1].rstrip("_")  # of its namespace, name and overload
        results = [self._tensor(text) for text in part.types]
        if part.view or part.sizes or not results or name in _MOVES:
            return 0.0
        out = results[0].elements
        operands = self._operands(part)
        if name in _CONTRACTIONS and len(operands) >= 2:
            return _CONTRACTIONS[name](operands, results[0], part)
        if name in _REDUCTIONS and operands:
            return float(_PASSES.get(name, 1) * max(out, operands[0].elements))
        return float(out)

    def traffic(self, site: Site) -> dict[int, float]:
        """Bytes that a site reads and writes, by the part that does: what stays inside of the site costs nothing.

        Each value once, by its first reader, and as if caches held nothing between sites.
        """
        inside = set(site.parts)
        moved = dict.fromkeys(site.parts, 0.0)
        reads: dict[Operand, float] = {}
        for i in site.parts:
            part = self._lineage.parts[i]
            types = arguments.operand_types(part.args)
            for operand in arguments.operands(part.args):
                if not self._inside(operand, inside):
                    base, size = self._base(operand, types)
                    moved[i] += max(0.0, size - reads.get(base, 0.0))
                    reads[base] = max(reads.get(base, 0.0), size)
            if self.leaves(part, inside):
                moved[i] += self.bytes(part)
        return moved

    def contracts(self, part: Part) -> bool:
        """Whether a part sums products: a matrix product, a convolution."""
        return [*part.op.split("."), ""][1].rstrip("_") in _CONTRACTIONS

    def bytes(self, part: Part) -> float:
        """Bytes of what a part gives."""
        return sum(self._tensor(text).bytes for text in part.types)

    def operand_bytes(self, operand: Operand, types: Mapping[Operand, str]) -> float:
        """Bytes of a value that a part reads; ``types`` are of the arguments and weights among its operands."""
        if operand[0] == "p":
            return self.bytes(self._lineage.parts[int(operand[1])])
        return self._tensor(types.get(operand, "")).bytes

    def _passes(self, part: Part) -> bool:
        """Whether a part gives its first operand's own elements: a view, a dropout in inference."""
        fate = self._lineage.part_fates.get(part.id)
        return part.view or (fate is not None and fate.kind == "merged" and fate.twin in part.inputs[:1])

    def _inside(self, operand: Operand, inside: set[int]) -> bool:
        """Whether a value is made in the site: by a part of it, or as a view of one."""
        while operand[0] == "p":
            if operand[1] in inside:
                return True
            part = self._lineage.parts[int(operand[1])]
            source = arguments.operands(part.args)
            if not self._passes(part) or not source:
                return False
            operand = source[0]
        return False

    def _base(self, operand: Operand, types: Mapping[Operand, str]) -> tuple[Operand, float]:
        """The value in memory behind views, and the bytes that are read of it."""
        size = math.inf
        while True:
            if operand[0] != "p":
                return operand, min(size, self._tensor(types.get(operand, "")).bytes)
            part = self._lineage.parts[int(operand[1])]
            size = min(size, sum(self._tensor(text).bytes for text in part.types))
            source = arguments.operands(part.args)
            if not self._passes(part) or not source:
                return operand, size
            operand, types = source[0], arguments.operand_types(part.args)

    def leaves(self, part: Part, inside: set[int]) -> bool:
        """Whether anything outside of the site reads a part's value, or the program returns it."""
        waiting, seen = [part.id], {part.id}
        while waiting:
            i = waiting.pop()
            if i in self._returned:
                return True
            for reader in self._readers.get(("p", i), ()):
                if self._passes(self._lineage.parts[reader]):
                    if reader not in seen:
                        seen.add(reader)
                        waiting.append(reader)
                elif reader not in inside:
                    return True
        return False

    def _operands(self, part: Part) -> list[_Tensor]:
        types = arguments.operand_types(part.args)
        tensors = []
        for operand in arguments.operands(part.args):
            if operand[0] == "p":
                texts: Iterable[str] = self._lineage.parts[int(operand[1])].types[:1]
            else:
                texts = [types[operand]] if operand in types else []
            tensors += [self._tensor(text) for text in texts]
        return tensors

    def _tensor(self, text: str) -> _Tensor:
        """Of a type such as ``f32[8, s0]``; what is no tensor weighs nothing."""
        match = _TYPE.match(text)
        if match is None:
            return _Tensor((0,), 0.0)
        kind, bits, dims = match.groups()
        shape = tuple(self._size(dim.strip()) for dim in dims.split(",") if dim.strip())
        return _Tensor(shape, 1.0 if kind in ("b", "bool") or not bits else int(bits) / 8)

    def _size(self, text: str) -> int:
        if text.isdecimal():
            return int(text)
        value = evaluate(text, self._symbols)
        return 1 if value is None else value


def _matrix(operands: list[_Tensor], out: _Tensor, part: Part) -> float:
    """mm, bmm, matmul, mv, dot: the first operand's last axis is summed."""
    return 2.0 * out.elements * (operands[0].shape[-1] if operands[0].shape else 1)


def _added(operands: list[_Tensor], out: _Tensor, part: Part) -> float:
    """addmm, baddbmm: a bias comes first."""
    return _matrix(operands[1:], out, part) + out.elements if len(operands) > 2 else _matrix(operands, out, part)


def _linear(operands: list[_Tensor], out: _Tensor, part: Part) -> float:
    return _matrix(operands, out, part) + (out.elements if len(operands) > 2 else 0)


def _convolution(operands: list[_Tensor], out: _Tensor, part: Part) -> float:
    """A product for each element of the weight's filter, for each result; of a transposed one, for each input."""
    filter_ = math.prod(operands[1].shape[1:])
    args: Any = json.loads(part.args)[0]
    transposed = len(args) > 6 and args[6] is True
    products = operands[0].elements if transposed else out.elements
    return 2.0 * products * filter_ + (out.elements if len(operands) > 2 else 0)


def _attention(operands: list[_Tensor], out: _Tensor, part: Part) -> float:
    """Scores and weighted values; the softmax between them is small."""
    query, key = operands[0], operands[1]
    scores = math.prod(query.shape[:-1]) * (key.shape[-2] if len(key.shape) > 1 else 1)
    return 2.0 * scores * (query.shape[-1] + out.shape[-1]) + 4.0 * scores


_CONTRACTIONS = {
    **dict.fromkeys(("mm", "bmm", "matmul", "mv", "dot", "_int_mm"), _matrix),
    **dict.fromkeys(("addmm", "baddbmm", "addmv"), _added),
    "linear": _linear,
    **dict.fromkeys(("convolution", "conv1d", "conv2d", "conv3d"), _convolution),
    **dict.fromkeys(
        ("scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu"), _attention
    ),
}  # fmt: skip
