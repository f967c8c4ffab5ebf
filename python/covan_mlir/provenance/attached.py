"""The operators that a user attached, as a lineage tells them: by the module paths of their actions."""

from __future__ import annotations

from collections.abc import Iterable

FOLDER = "attached"
"""The module path of an attached operator's actions is this and its plain name, and perhaps more."""


def attached_in(modules: Iterable[str]) -> tuple[str, ...]:
    """The plain names of the attached operators that actions are of, each once, in order.

    Args:
        modules: the actions' module paths.
    """
    paths = (module.split(".") for module in modules)
    return tuple(dict.fromkeys(path[1] for path in paths if len(path) > 1 and path[0] == FOLDER))
