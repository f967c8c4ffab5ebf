"""Which instruction multiplies integers of 8 bits on which processors, that kernels for these are exact, and have it in
their code."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import test_integer_products as products
import test_word_convolutions as convolutions
import test_word_depthwise as depthwise
import torch
from elftools.elf.elffile import ELFFile
from limits import SWEEP, many, part

import covan_mlir
from covan_mlir.fred.chain import Chain
from covan_mlir.fred.interpret import interpret
from covan_mlir.lowering.kernels import targets
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.kernel import Executable, Refusal
from covan_mlir.lowering.kernels.select import choices
from covan_mlir.lowering.kernels.standalone import Standalone, compile_kernels
from covan_mlir.lowering.targets import parse
from covan_mlir.machine import reading
from covan_mlir.machine.description import Machine
from covan_mlir.runtime.requirements import cpu_features, linux_name

ARM = "cpu:aarch64-linux-gnu"
PROCESSORS = {
    "cpu:znver4": ("vpdpbusd",),
    "cpu:alderlake": ("vpdpbusd",),
    "cpu:haswell": ("vpmaddwd",),
    "cpu:nehalem": (),
    "cpu:skylake-avx512": (),
    ARM: (),
    f"{ARM}:cortex-a72": (),
    f"{ARM}:neoverse-n1": ("sdot",),
    f"{ARM}:neoverse-v1": ("sdot", "usdot"),
}
HERE = {"cpu:alderlake": {"avx2", "fma", "avxvnni", "bmi2"}, "cpu:haswell": {"avx2", "fma", "bmi2"}}
"""Instructions that kernels for them have."""
CASES = {
    **products.CASES,
    **{f"window {name}": chain for name, chain in convolutions.INTEGERS.items()},
    **{f"channel {name}": chain for name, chain in depthwise.CASES.items()},
}
WIDE = ("channel far",)
"""What vectors of 16 sums show."""
FEW = ("transposed", "unsigned", "points", "unsigned points", "window signed", "window three", "channel strided")


def machine(name: str) -> Machine:
    """A processor."""
    target = targets.of(name)
    assert isinstance(target, CpuTarget)
    return target.machine


def kernels(name: str, chain: Chain, on: Machine, count: int) -> list[Executable]:
    """The best and some more that multiply words."""
    if name.startswith("window"):
        return convolutions.paired(chain, on, count)
    return (depthwise if name.startswith("channel") else products).kernels(chain, on, count)


@pytest.mark.parametrize("name", PROCESSORS)
def test_who_can(name: str) -> None:
    """By LLVM's list of a processor's instructions; those of 512 bits that make numbers wider first take too long."""
    assert machine(name).int8_words == PROCESSORS[name]


@pytest.mark.parametrize(
    ("architecture", "facts", "words"),
    [
        ("x86_64", {"flags": "avx2 fma"}, ("vpmaddwd",)),
        ("x86_64", {"flags": "avx2 fma avx_vnni"}, ("vpdpbusd",)),
        ("x86_64", {"flags": "avx2 avx512f avx512bw"}, ()),
        ("x86_64", {"flags": "avx2 avx512f avx512_vnni"}, ("vpdpbusd",)),
        ("aarch64", {"Features": "fp asimd"}, ()),
        ("aarch64", {"Features": "fp asimd asimddp"}, ("sdot",)),
        ("aarch64", {"Features": "fp asimd asimddp i8mm"}, ("sdot", "usdot")),
    ],
)
def test_who_can_here(
    architecture: str, facts: dict[str, str], words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Linux's list of them."""
    monkeypatch.setattr(reading, "processor", lambda: facts)
    monkeypatch.setattr(reading.platform, "machine", lambda: architecture)
    reading.read.cache_clear()
    assert reading.read(1).int8_words == words
    reading.read.cache_clear()


def arrays_of(chain: Chain, extreme: bool) -> list[np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    """All numbers, or the first and the last one."""
    generator = np.random.default_rng(5)
    known = {axis.name: axis.size or 37 for axis in chain.axes}
    numbers = np.array([-128, 127]) if extreme else np.arange(-128, 128)
    return [
        generator.choice(numbers, [known[axis] for axis in value.axes]).astype(value.dtype.replace("i", "int"))
        for value in chain.inputs
    ]


def check(chains: dict[str, Chain], written: dict[str, list[Executable]], alone: Standalone) -> None:
    """Against integers."""
    for name, chain in chains.items():
        assert written[name], name
        for extreme in (False, True):
            arrays = arrays_of(chain, extreme)
            given = dict(zip((value.name for value in chain.inputs), arrays, strict=True))
            want = interpret(chain, given)["y"]
            for one in written[name]:
                got = np.asarray(alone[one.name](*map(alone.buffer, arrays)).to_host())
                np.testing.assert_array_equal(got, want, f"{name} {extreme}")


def renamed(executables: list[Executable], number: int, rewrite: Callable[[str], str] = str) -> list[Executable]:
    """With names of their own."""
    listed = []
    for n, one in enumerate(executables):
        name = f"k{number}_{n}"
        text = rewrite(re.sub(rf"\b{one.name}\b", name, one.text))
        parts = {"sizes": one.sizes, "preparations": one.preparations}
        listed.append(Executable.single(name, text, one.inputs, one.outputs, **parts))  # type: ignore[arg-type]  # both
    return listed


@pytest.mark.parametrize("name", HERE)
def test_exact(name: str) -> None:
    """Compiled for the processor, and run here, where this one has its instructions."""
    if lacking := {linux_name(one) for one in HERE[name]} - (cpu_features() or frozenset()):
        pytest.skip(f"this processor has no {', '.join(sorted(lacking))}")
    on = machine(name)
    chains = {case: CASES[case] for case in (CASES if SWEEP else FEW) if case not in WIDE}
    written = {case: renamed(kernels(case, chain, on, many(1, 3)), n) for n, (case, chain) in enumerate(chains.items())}
    every = [one for each in written.values() for one in each]
    check(chains, written, Standalone(every, target=parse(name)))


@pytest.mark.parametrize("name", part(HERE, kept=["cpu:haswell"]))
def test_in_a_program(name: str) -> None:
    """Points, windows of channels and residuals, compiled for the processor: one kernel of steps each."""
    if lacking := {linux_name(one) for one in HERE[name]} - (cpu_features() or frozenset()):
        pytest.skip(f"this processor has no {', '.join(sorted(lacking))}")
    torch.manual_seed(0)
    model, x = depthwise.Bottleneck().eval(), torch.randn(2, 16, 15, 37)
    exe = covan_mlir.compile_module(model, (x,), target=name)
    templates = [record.template for record in exe.lineage.fusions if record.kernel]
    assert templates == ["integer_product", "word_depthwise", "word_depthwise"]
    torch.testing.assert_close(exe(x), model(x), rtol=0, atol=0.5)
    assert (exe(x) != model(x)).float().mean() < 0.01
    assert exe.verify(), str(exe.verify())


def of_neon(text: str) -> str:
    """A kernel in which NEON's instructions are what ARM's manual says that they do (Arm ARM, SDOT and USDOT, vector):
    each lane's four products, of numbers extended by their signs, are added to it."""

    def written(match: re.Match[str]) -> str:
        result, signs, total, *factors = match.groups()
        own = f"%words{result[1:]}"
        lines = [f"{own}_f{f} = vector.bitcast {one} : vector<16xi8> to vector<4xi32>" for f, one in enumerate(factors)]
        for k in range(4):
            for f, shift in enumerate(("shrui" if signs == "us" else "shrsi", "shrsi")):
                lines.append(f"{own}_u{k}{f} = arith.constant dense<{24 - 8 * k}> : vector<4xi32>")
                lines.append(f"{own}_d{k}{f} = arith.constant dense<24> : vector<4xi32>")
                lines.append(f"{own}_l{k}{f} = arith.shli {own}_f{f}, {own}_u{k}{f} : vector<4xi32>")
                lines.append(f"{own}_x{k}{f} = arith.{shift} {own}_l{k}{f}, {own}_d{k}{f} : vector<4xi32>")
            lines.append(f"{own}_p{k} = arith.muli {own}_x{k}0, {own}_x{k}1 : vector<4xi32>")
            lines.append(f"{result if k == 3 else f'{own}_t{k}'} = arith.addi {total}, {own}_p{k} : vector<4xi32>")
            total = f"{own}_t{k}"
        return "\n".join(lines)

    call = r'(%\w+) = llvm\.call_intrinsic "llvm\.aarch64\.neon\.(u?s)dot\.v4i32\.v16i8"\((%\w+), (%\w+), (%\w+)\).*'
    return re.sub(call, written, text)


@pytest.mark.parametrize("name", [f"{ARM}:neoverse-n1", f"{ARM}:neoverse-v1"])
def test_exact_as_arm_defines_it(name: str) -> None:
    """What is around the instructions, which are replaced by what they do."""
    on = machine(name)
    chains = {case: CASES[case] for case in (CASES if SWEEP else FEW) if case not in WIDE}
    written = {
        case: renamed(kernels(case, chain, on, many(1, 3)), n, of_neon)
        for n, (case, chain) in enumerate(chains.items())
    }
    every = [one for each in written.values() for one in each]
    assert not any("aarch64" in one.text for one in every)
    check(chains, written, Standalone(every))


def instructions(code: bytes) -> bytes:
    """Those of a program's library."""
    library = ELFFile(io.BytesIO(code[code.index(b"\x7fELF") :]))
    data: bytes = library.get_section_by_name(".text").data()
    return data


def words_of(code: bytes) -> Iterator[int]:
    """ARM's instructions."""
    return (int.from_bytes(code[n : n + 4], "little") for n in range(0, len(code), 4))


def has(name: str, code: bytes) -> bool:
    """Whether code has an instruction, by its encoding in the manuals of Intel and ARM; VEX ones of 256 bits."""
    if name == "vpdpbusd":  # VEX.256.66.0F38.W0 50
        begins = (n for n in range(len(code) - 3) if code[n] == 0xC4 and code[n + 3] == 0x50)
        return any(code[n + 1] & 31 == 2 and code[n + 2] & 0x87 == 5 for n in begins)
    if name == "vpmaddwd":  # VEX.256.66.0F F5
        return any(code[n + 2] == 0xF5 and code[n + 1] & 7 == 5 for n in range(len(code) - 2) if code[n] == 0xC5)
    vector, element = {"sdot": (0x4E809400, 0x4F80E000), "usdot": (0x4E809C00, 0x4F80F000)}[name]
    return any(word & 0xFFE0FC00 == vector or word & 0xFFC0F400 == element for word in words_of(code))


CODE = (
    ("cpu:alderlake", "unsigned", "vpdpbusd"),
    ("cpu:alderlake", "window signed", "vpdpbusd"),
    ("cpu:haswell", "transposed", "vpmaddwd"),
    ("cpu:haswell", "channel strided", "vpmaddwd"),
    (f"{ARM}:neoverse-n1", "unsigned", "sdot"),
    (f"{ARM}:neoverse-v1", "transposed", "sdot"),
    (f"{ARM}:neoverse-v1", "unsigned", "usdot"),
    (f"{ARM}:neoverse-v1", "window three", "usdot"),
    (f"{ARM}:neoverse-n1", "channel strided", "sdot"),
)


@pytest.mark.parametrize(
    ("name", "case", "instruction"), part(CODE, kept=[CODE[1], CODE[3], CODE[4], CODE[5], CODE[7]])
)
def test_object_code(name: str, case: str, instruction: str) -> None:
    """Of a kernel, compiled for the processor."""
    written = kernels(case, CASES[case], machine(name), 1)
    assert has(instruction, instructions(compile_kernels(written, parse(name))))


@pytest.mark.parametrize("name", ["cpu:nehalem", ARM, "cpu:skylake-avx512"])
def test_others_multiply_floats(name: str) -> None:
    """As the program has them; sums of integers are left to the compiler."""
    listed = [choices(CASES[case], CpuTarget(machine(name))) for case in FEW]
    names = {pair[0].template.name for one in listed if not isinstance(one, Refusal) for pair in one.schedules()}
    assert not names & {"integer_product", "word_convolution", "word_depthwise"}
