"""Properties of ONNX nodes that tell where these come from; whoever writes them needs no torch."""

from __future__ import annotations

EXPORTER = "pkg.torch.onnx."
"""How the keys begin under which PyTorch's exporter leaves what it knows of a node."""
MODULE = "covan.module"
"""Key of a module path with dots (``encoder.layer``), from converters of ours. It comes before what names tell."""
LINES = "covan.stack_trace"
"""Key of source lines, outermost first, as Python prints them: ``File "net.py", line 3, in call``."""
