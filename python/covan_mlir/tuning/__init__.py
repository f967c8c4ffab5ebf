"""Choosing kernels by measurement: which are tried, of what task, in what order. `covan_mlir.tune` is the whole of it.

After "Ansor: Generating High-Performance Tensor Programs for Deep Learning" (Zheng et al., OSDI 2020): whole schedules
are sampled, evolved and ranked by a model that learns from what was measured (section 5), and time goes to the task
that is expected to gain most from it (section 6). The space is what the templates of `covan_mlir.lowering.kernels` can
write (docs/tuning.md), in structures that rules derive; `rule` makes one of a user's own.
"""

from covan_mlir.tuning.sketches.rules import rule

__all__ = ["rule"]
