"""``covan-opt``: mlir-opt with torch-mlir's and covan's dialects and passes."""

# argparse, where covan's other command line uses typer: whoever comes from mlir-opt types LLVM's flags, long
# names with one dash or two, and lit tests start this program hundreds of times, so it imports little.
import argparse
import errno
import io
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch_mlir.dialects
from torch_mlir import ir

# By its package, which makes its passes known.
import covan_mlir.lowering.kernels.passes  # noqa: F401
from covan_mlir import dialects
from covan_mlir.dialects.prov_locations import map_location, rewrite_locations
from covan_mlir.passes.framework import extensions, registry
from covan_mlir.passes.framework.interface import op_name_of
from covan_mlir.passes.framework.options import option_types, type_name
from covan_mlir.passes.framework.pipeline import Pipeline, parse_pipeline
from covan_mlir.passes.framework.pipeline_text import PipelineError
from covan_mlir.support import standard_streams, whole_file
from covan_mlir.support.processes import apart
from covan_mlir.tools.opt_diagnostics import Collector, Diagnostic, Sources, check, render, shortened

BYTECODE_MAGIC = b"ML\xefR"
SPLIT_MARK = "// -----"
_LARGEST = 1 << 30  # bytes of input
_MOST_TOLD = 1 << 18  # characters of diagnostics
_PATIENCE = 10.0  # seconds that a pipe may be without a writer

# The bindings cannot list the dialects, only say whether one is there. Most names can be told from the
# files of torch_mlir.dialects; these have none.
_WITHOUT_FILE = ["dlti", "pdl_interp", "ptr", "tm_tensor", "torch_c", "xevm"]

_EXAMPLES = """\
examples:
  covan-opt model.mlir -p canonicalize -p prov-strip
      runs two passes on the module
  covan-opt model.mlir --pass-pipeline='builtin.module(func.func(cse),prov-lower-locations{drop-table=true})'
      runs a pipeline, covan's passes among MLIR's
  covan-opt --emit-bytecode model.mlir -o model.mlirbc
      converts text to bytecode; bytecode as input is recognised
  covan-opt --split-input-file --verify-diagnostics test.mlir
      checks that each part of a test file, divided by '// -----', gives the errors it expects:
        // expected-error@+1 {{a part of the message}}
      also -warning, -note, -remark; @+N, @-N, @above, @below, @unknown; a count before the
      braces (2, 2+, + or *); and expected-error-re {{text with {{a regex}} in it}}
"""


class UsageError(Exception):
    """What the user typed cannot be done; reported without a location."""


@dataclass(frozen=True)
class Result:
    """What became of one part of the input: its output, or None if it failed, and what to tell the user."""

    output: str | bytes | None
    diagnostics: tuple[Diagnostic, ...]


class _Parser(argparse.ArgumentParser):
    def print_help(self, file: Any = None) -> None:
        """Or fail: argparse passes over what cannot be written."""
        print(self.format_help(), end="", file=file, flush=True)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def _argument_parser() -> _Parser:
    parser = _Parser(
        prog="covan-opt",
        description="Parses MLIR (text or bytecode), runs passes on it and prints the result.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("input", metavar="FILE", nargs="?", default="-", help="the input; - or nothing is standard input")
    add("-o", dest="output", metavar="FILE", default="-", help="the output; written only if all went well")
    add("--pass-pipeline", metavar="TEXT", help="a pipeline such as builtin.module(a,func.func(b{option=1}))")
    add(
        "-p",
        dest="passes",
        metavar="PASS",
        action="append",
        default=[],
        help="a pass to run; may be repeated",
    )
    add(
        "--load-pass-plugin",
        metavar="FILE.py",
        action="append",
        default=[],
        help="loads passes and templates of your own",
    )
    add("--list-passes", action="store_true", help="lists covan's passes and their options")
    add("--show-dialects", action="store_true", help="lists the dialects")
    add("--emit-irdl", action="store_true", help="prints covan's dialects in IRDL, for mlir-opt --irdl-file")
    add("--emit-bytecode", action="store_true", help="writes bytecode")
    add(
        "--split-input-file",
        action="store_true",
        help=f"processes the parts between '{SPLIT_MARK}' one by one",
    )
    add("--verify-diagnostics", action="store_true", help="checks diagnostics against expected-error comments")
    add("--allow-unregistered-dialect", action="store_true", help="accepts ops of dialects that are not known")
    add("--mlir-print-debuginfo", action="store_true", help="prints locations")
    add("--mlir-print-op-generic", action="store_true", help="prints ops in the generic form")
    add("--mlir-print-ir-before-all", action="store_true", help="prints the IR before each pass to stderr")
    add("--mlir-print-ir-after-all", action="store_true", help="prints the IR after each pass to stderr")
    return parser


def _two_dashes(arguments: Sequence[str], parser: _Parser) -> list[str]:
    """LLVM's ``-split-input-file`` as argparse wants it; argparse would take it for ``-s`` and a value."""
    known = {option for action in parser._actions for option in action.option_strings}
    return ["-" + a if a.startswith("-") and "-" + a.split("=")[0] in known else a for a in arguments]


def _split(text: str) -> list[str]:
    """The parts between lines that start with the mark, padded to keep the line numbers of the file."""
    parts = re.split(rf"(?m)^{SPLIT_MARK}.*$", text)
    lines = 0
    for index, part in enumerate(parts):
        parts[index] = "\n" * lines + part
        lines += part.count("\n")
    return parts


def _new_context(options: argparse.Namespace) -> ir.Context:
    context = ir.Context()
    dialects.load(context)
    context.allow_unregistered_dialects = options.allow_unregistered_dialect
    return context


def _rename_input(module: ir.Module, name: str) -> None:
    """Gives locations the input's name: the bindings parse a module without one and call it ``-``."""

    def change(location: ir.Location) -> ir.Location | None:
        if type(location).__name__ != "FileLineColLoc" or location.filename != "-":
            return None
        return location.file(
            name,
            location.start_line,
            location.start_col,
            location.end_line,
            location.end_col,
            context=location.context,
        )

    rewrite_locations(module.operation, lambda location: map_location(location, change))


def process(source: str | bytes, name: str, pipeline: Pipeline | None, options: argparse.Namespace) -> Result:
    """Parses one part of the input, runs the pipeline on it and prints it."""
    context = _new_context(options)
    collector = Collector(context, name)
    output: str | bytes | None = None
    # What has no diagnostic of its own is reported in words.
    fallback = "cannot parse the input"
    try:
        with context:
            module = ir.Module.parse(source)
            if name != "-":
                _rename_input(module, name)
            fallback = "the pass pipeline failed"
            if pipeline is not None:
                _run(pipeline, module, options)
            fallback = "the result does not verify"
            module.operation.verify()
            output = _print(module.operation, options)
    except ir.MLIRError:
        if not any(d.severity == "error" for d in collector.diagnostics):
            collector.diagnostics.append(Diagnostic("error", fallback))
    finally:
        collector.detach()
    if options.verify_diagnostics:
        errors = check(collector.diagnostics, source if isinstance(source, str) else "", name)
        return Result(None if errors else output or "", tuple(errors))
    return Result(output, tuple(collector.diagnostics))


def _run(pipeline: Pipeline, module: ir.Module, options: argparse.Namespace) -> None:
    manager = pipeline.build(module.context)
    before, after = options.mlir_print_ir_before_all, options.mlir_print_ir_after_all
    if before or after:
        manager.enable_ir_printing(
            print_before_all=before,
            print_after_all=after,
            enable_debug_info=options.mlir_print_debuginfo,
            print_generic_op_form=options.mlir_print_op_generic,
        )
    manager.run(module.operation)


def _print(operation: ir.Operation, options: argparse.Namespace) -> str | bytes:
    if options.emit_bytecode:
        buffer = io.BytesIO()
        operation.write_bytecode(buffer)
        return buffer.getvalue()
    text: str = operation.get_asm(
        enable_debug_info=options.mlir_print_debuginfo,
        print_generic_op_form=options.mlir_print_op_generic,
        assume_verified=True,
    )
    return text if text.endswith("\n") else text + "\n"


def _read(path: str) -> str | bytes:
    try:
        data = sys.stdin.buffer.read(_LARGEST + 1) if path == "-" else _contents(whole_file.check(path))
    except OSError as error:
        raise UsageError(f"cannot read '{path}': {error.strerror}") from None
    if len(data) > _LARGEST:
        raise UsageError(f"cannot read '{path}': it has more than {_LARGEST} bytes")
    if data.startswith(BYTECODE_MAGIC):
        return data
    try:
        # The parser ends at a zero byte, silently.
        if 0 in data:
            raise ValueError
        return data.decode()
    except ValueError:
        raise UsageError(f"'{path}' is neither MLIR text nor MLIR bytecode") from None


def _contents(path: str) -> bytes:
    """Of a file, or of a pipe that somebody writes to: as much as is of use."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb", buffering=0) as file:
        mode = os.fstat(descriptor).st_mode
        end = time.monotonic() + _PATIENCE
        start: bytes | None = b""
        while stat.S_ISFIFO(mode):
            start = file.read(1)  # None: there is a writer, who has not written yet
            if start != b"":
                break
            if time.monotonic() > end:
                raise OSError(errno.EPIPE, "it is a pipe that nobody writes to")
            time.sleep(0.05)
        os.set_blocking(descriptor, True)
        with io.BufferedReader(file) as rest:
            return (start or b"") + rest.read(_LARGEST + 1)


def _write(path: str, data: str | bytes) -> None:
    raw = data.encode() if isinstance(data, str) else data
    if path == "-":
        sys.stdout.buffer.write(raw)
        sys.stdout.buffer.flush()
        return
    try:
        whole_file.write(path, raw)
    except OSError as error:
        raise UsageError(f"cannot write '{path}': {error.strerror}") from None


def _list_passes() -> str:
    lines = ["covan's passes:"]
    for pass_class in registry.all_passes():
        on = op_name_of(pass_class) or "any op"
        lines += [f"  {pass_class.name}  (on {on})", f"      {registry.summary(pass_class)}"]
        for option, kind in option_types(pass_class).items():
            lines.append(f"      {option}: {type_name(kind)}")
    lines.append("and every pass and pipeline of MLIR and torch-mlir by its name: see torch-mlir-opt --help")
    return "\n".join(lines) + "\n"


def _show_dialects() -> str:
    context = ir.Context()
    dialects.load(context)
    files = Path(torch_mlir.dialects.__path__[0]).glob("_*_ops_gen.py")
    names = {file.name[1 : -len("_ops_gen.py")] for file in files}.union(_WITHOUT_FILE)
    names.update(dialect.DIALECT_NAMESPACE for dialect in dialects.dialect_classes())
    return "Available Dialects: " + ", ".join(n for n in sorted(names) if context.is_dialect_loaded(n)) + "\n"


def _pipeline(options: argparse.Namespace) -> Pipeline | None:
    if options.pass_pipeline is not None and options.passes:
        raise UsageError("-p and --pass-pipeline cannot be used together")
    text = options.pass_pipeline
    if options.passes:
        text = f"builtin.module({','.join(options.passes)})"
    return None if text is None else parse_pipeline(text)


def run(arguments: Sequence[str], report: Callable[[str], object]) -> bool:
    """Does what the command line asks; what there is to tell the user goes to ``report``.

    Returns whether all went well.

    Raises:
        UsageError, ExtensionError, PipelineError: the command line or the input cannot be used.
    """
    parser = _argument_parser()
    options = parser.parse_args(_two_dashes(arguments, parser))
    for plugin in options.load_pass_plugin:
        extensions.load(plugin)
    questions = {
        "list_passes": _list_passes,
        "show_dialects": _show_dialects,
        "emit_irdl": dialects.irdl_text,
    }
    for question, answer in questions.items():
        if getattr(options, question):
            _write(options.output, answer())
            return True
    if options.emit_bytecode and options.split_input_file:
        raise UsageError("--emit-bytecode writes one module: it cannot be used with --split-input-file")

    pipeline = _pipeline(options)
    source = _read(options.input)
    name = "<stdin>" if options.input == "-" else options.input
    if isinstance(source, bytes):
        parts: list[str | bytes] = [source]
    else:
        parts = list(_split(source)) if options.split_input_file else [source]
    sources = Sources(name, source if isinstance(source, str) else "")
    results = [process(part, name, pipeline, options) for part in parts]
    for result in results:
        for diagnostic in result.diagnostics:
            report(render(diagnostic, sources))
    outputs = [result.output for result in results if result.output is not None]
    if len(outputs) < len(results):
        return False
    if isinstance(outputs[0], bytes):
        _write(options.output, outputs[0])
    else:
        # A part of which only diagnostics were expected has no output.
        texts = [text for text in outputs if isinstance(text, str) and text]
        _write(options.output, f"{SPLIT_MARK}\n".join(texts))
    return True


class _Told:
    """What the user is told on standard error: as much as people read."""

    def __init__(self) -> None:
        self._left = _MOST_TOLD
        self._withheld = 0

    def __call__(self, text: str) -> None:
        if self._left > 0:
            sys.stderr.write(text)
        else:
            self._withheld += 1
        self._left -= len(text)

    def end(self) -> None:
        """Tell what was not told."""
        if self._withheld:
            print(f"covan-opt: note: {self._withheld} more diagnostics are not shown", file=sys.stderr)


def answer(argv: Sequence[str]) -> int:
    """Run a command line in this process. Returns the exit code: 0, or 1 if anything failed."""
    told = _Told()
    try:
        return 0 if run(argv, told) else 1
    except (UsageError, extensions.ExtensionError, PipelineError) as error:
        print(f"covan-opt: error: {shortened(str(error))}", file=sys.stderr)
        return 1
    except RecursionError:
        print("covan-opt: error: the IR is nested too deeply", file=sys.stderr)
        return 1
    except MemoryError:
        print("covan-opt: error: out of memory", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of our output went away, as head does
        standard_streams.discard()
        return 1
    except OSError as error:
        if not (reason := standard_streams.unwritable(error)):
            raise
        standard_streams.discard()
        print(f"covan-opt: error: {reason}", file=sys.stderr)
        return 1
    finally:
        told.end()


def main() -> int:
    """The console script. IR is handled in a process of its own, for compilers underneath crash on some.

    Returns the exit code: 0, 1 if anything failed, or 130 after an interrupt.
    """
    standard_streams.prepare()
    try:
        return apart.run(lambda: answer(sys.argv[1:]))
    except apart.CrashError as error:
        print(f"covan-opt: error: the compiler {error} on this input", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"covan-opt: error: no process for the compiler: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
