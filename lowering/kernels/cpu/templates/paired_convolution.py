"""Direct convolutions of bfloat16, two channels at a time: where a machine has an instruction that adds both products
to a sum of single precision (`covan_mlir.lowering.kernels.cpu.words`). The nest is that of all direct convolutions.
"""

from __future__ import annotations

from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels.cpu.convolution import ConvolutionSchedule
from covan_mlir.lowering.kernels.cpu.convolution_roles import check_taps, convolution_of
from covan_mlir.lowering.kernels.cpu.planes import PlaneLayout
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.cpu.templates.convolution import ConvolutionMatch
from covan_mlir.lowering.kernels.cpu.words import BF16
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.registry import register
from covan_mlir.lowering.kernels.template import ChainKind, Template


@register
class PairedConvolutionTemplate(Template[CpuTarget, ConvolutionSchedule]):
    """A direct convolution of bfloat16 with a weight, whose channels are multiplied in pairs."""

    name: ClassVar[str] = "paired_convolution"
    target: ClassVar[str] = "cpu"
    chains: ClassVar[tuple[ChainKind, ...]] = ("windows",)

    def match(self, chain: Chain, target: CpuTarget, fusion: Fusion | None = None) -> ConvolutionMatch | Refusal:
        """See `Template`."""
        if not target.machine.bf16_pairs or not BF16.has_instruction(target.machine.lanes("f32")):
            return Refusal("the machine does not multiply bfloat16 in pairs")
        convolution = convolution_of(chain)
        if convolution.paired_filter is None:
            return Refusal("its channels are not multiplied in pairs")
        check_taps(len(PlaneLayout(convolution, 1, 1).taps))
        match = ConvolutionMatch(convolution, target, pairs=True)
        return match if match.ranked else Refusal("no planes of it fit into a stack frame")
