"""Operators of torch that read memory where their operands say, without a look at whether it is theirs.

On numbers that are drawn at random, or come from a file, they may end the process.
"""

from __future__ import annotations

_UNCHECKED = frozenset(
    {
        "_convert_indices_from_coo_to_csr",
        "_convert_indices_from_csr_to_coo",
        "_ctc_loss",
        "ctc_loss",
        "linalg_ldl_solve",
        "linalg_lu_solve",
        "lu_unpack",
    }
)


def is_unchecked(name: str) -> bool:
    """Whether an operator, ``aten.lu_unpack.default``, is one of them, as gradients of choices are."""
    word = name.split(".")[1] if "." in name else name
    return word in _UNCHECKED or (word.endswith("_backward") and ("pool" in word or "ctc" in word or "segment" in word))
