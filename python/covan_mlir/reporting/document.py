"""One HTML file that needs nothing else, of a template, styles, scripts and content.

A page is package data: page.html, into which page.css, scripts and the content, as JSON, are put when the file is
written. Its content security policy names the hashes of exactly these: nothing else runs, whatever the model's names
say, and nothing is fetched.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Sequence
from importlib.resources.abc import Traversable
from typing import Any

from covan_mlir.errors import CovanError
from covan_mlir.support import whole_file


def document(folder: Traversable, title: str, scripts: Sequence[str], content: Any) -> str:
    """The text of a page.

    Args:
        folder: with page.html, page.css and the scripts.
        content: what the scripts read, as JSON values.
    """
    style = folder.joinpath("page.css").read_text(encoding="utf-8")
    script = "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in scripts)
    pieces = {
        "title": html.escape(title),
        "policy": f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'",
        "style": style,
        "script": script,
        "content": _json(content),
    }
    template = folder.joinpath("page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: pieces[match[1]], template)


def save(path: str | os.PathLike[str], text: str) -> None:
    """Write a file of a report.

    Raises:
        CovanError: it cannot be written.
    """
    try:
        whole_file.write(path, text.encode("utf-8", "backslashreplace"))  # file names may be no text
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CovanError(f"{os.fspath(path)}: the report cannot be written: {reason}\nChoose another path.") from error


def _json(value: Any) -> str:
    """JSON that can stand in a script element: no text in it ends the element or opens a comment."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = text.encode("utf-8", "backslashreplace").decode()  # lone surrogates, as of strange file names
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
