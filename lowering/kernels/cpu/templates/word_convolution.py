"""Direct convolutions of bfloat16, or of integers of 8 bits, several channels at a time: where a machine has an
instruction that adds all of their products to a sum (`covan_mlir.lowering.kernels.cpu.words`). The nest is that of all
direct convolutions.
"""

from __future__ import annotations

from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels.cpu.convolution_roles import check_taps, convolution_of
from covan_mlir.lowering.kernels.cpu.convolution_schedule import ConvolutionSchedule
from covan_mlir.lowering.kernels.cpu.planes import PlaneLayout
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.cpu.templates.convolution import ConvolutionMatch
from covan_mlir.lowering.kernels.cpu.words import BF16, INTEGER_SUMS, integer_words
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.registry import register
from covan_mlir.lowering.kernels.template import ChainKind, Template


@register
class WordConvolutionTemplate(Template[CpuTarget, ConvolutionSchedule]):
    """A direct convolution of narrow numbers with a weight, whose channels are multiplied a word at a time."""

    name: ClassVar[str] = "word_convolution"
    target: ClassVar[str] = "cpu"
    chains: ClassVar[tuple[ChainKind, ...]] = ("windows",)

    def match(self, chain: Chain, target: CpuTarget, fusion: Fusion | None = None) -> ConvolutionMatch | Refusal:
        """See `Template`."""
        machine = target.machine
        integers = any(step.dtype == INTEGER_SUMS for step in chain.reductions)
        words = integer_words(machine) if integers else ()
        if not (words or (machine.bf16_pairs and not integers and BF16.has_instruction(machine.lanes("f32")))):
            return Refusal("the machine does not multiply such numbers a word at a time")
        convolution = convolution_of(chain, integers=words)
        if convolution.words is None:
            return Refusal("its channels are not multiplied a word at a time")
        check_taps(len(PlaneLayout(convolution, 1, 1).taps))
        match = ConvolutionMatch(convolution, target, words=True)
        return match if match.ranked else Refusal("no planes of it fit into a stack frame")
