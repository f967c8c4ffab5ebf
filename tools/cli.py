"""``covan``: compile a model, run it, and ask where its operations went."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from covan_mlir.errors import CovanError
from covan_mlir.support import standard_streams, whole_file
from covan_mlir.tools import (
    cli_compare,
    cli_diff,
    cli_extract,
    cli_machine,
    cli_profile,
    cli_quantize,
    cli_report,
    cli_run,
    cli_signing,
    cli_tune,
)
from covan_mlir.tools.cli_common import CliError, Progress, amount, describe, torch_is_quiet
from covan_mlir.tools.cli_options import (
    MODEL,
    MODEL_FILES,
    Artifact,
    Attach,
    Debug,
    FromModel,
    Inputs,
    IreeFlags,
    OneTarget,
    Seed,
    Session,
)
from covan_mlir.version import __version__

# What needs numpy, torch or a runtime is imported where it is used: --help is quick, and explain needs numpy only.

app = typer.Typer(
    name="covan",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_TOOLS = ("torch", "torch-mlir", "iree-base-compiler", "iree-base-runtime")


def _show_version(value: bool) -> None:
    if value:
        print(f"covan {__version__}")
        for name in _TOOLS:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                print(f"  {name} {importlib.metadata.version(name)}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def covan(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show versions and exit.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Compile PyTorch models without losing track of where anything came from.

    \b
    covan compile model.py:make -i 1x3x224x224xf32 -o model.covan
    covan run model.covan
    covan explain model.covan blocks.0.attn
    covan profile model.covan --by module
    covan verify model.covan
    covan report model.covan
    """
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


@app.command("compile")
def compile_(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar=MODEL, help=f"The model. Files are {MODEL_FILES}.")],
    inputs: Inputs = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE.covan", help="Default: the model's name, here.")
    ] = None,
    target: Annotated[str, typer.Option("--target", help="What to compile for; several with commas between.")] = "cpu",
    iree_flag: IreeFlags = None,
    dynamic: Annotated[
        list[str] | None,
        typer.Option(
            "--dynamic",
            metavar="ARG:DIM|NAME=LOW..HIGH",
            help="Leave a dimension open; ARG is a name or an index. Of ONNX files by the dimension's name.",
        ),
    ] = None,
    provenance: Annotated[
        bool, typer.Option("--provenance/--no-provenance", help="Record which kernel performs what.")
    ] = True,
    reproducer: Annotated[
        str | None, typer.Option("--reproducer", metavar="FILE.mlir", help="If it fails, keep what it failed on.")
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="WHAT=TAG", help="Tag a name, module, group or FILE.py:LINE; may be repeated."),
    ] = None,
    trace: Annotated[
        Literal["phases", "passes"], typer.Option("--trace", help="Record after what of the compiler things changed.")
    ] = "phases",
    winograd: Annotated[
        int,
        typer.Option(
            "--winograd", min=0, metavar="TIMES", help="Most error of such convolutions, in direct ones'; 0: none."
        ),
    ] = 4,
    check_indices: Annotated[
        bool, typer.Option("--check-indices/--no-check-indices", help="Refuse indices that are out of range.")
    ] = True,
    attach: Attach = None,
    cache: Annotated[
        bool, typer.Option("--cache/--no-cache", help="Take what was compiled before from disk; keep what was not.")
    ] = True,
    records: Annotated[
        str,
        typer.Option("--records", metavar="FILE|off", help="Schedules that 'covan tune' measured; default: your own."),
    ] = "",
    superoptimise: Annotated[
        int,
        typer.Option(
            "--superoptimise", min=0, metavar="SECONDS", help="Look so long for a program predicted to be faster."
        ),
    ] = 0,
    rules: Annotated[
        str | None, typer.Option("--rules", metavar="FILE", help="Rules of your own for that, beside covan's.")
    ] = None,
    assume: Annotated[
        bool, typer.Option("--assume", help="Apply rules of your own that cannot be proved; the lineage says so.")
    ] = False,
    specialise: Annotated[
        list[str] | None,
        typer.Option(
            "--specialise",
            metavar="NAME=SIZE,LOW..HIGH,...|usual",
            help="Versions for these sizes of an open dimension; may be repeated.",
        ),
    ] = None,
    print_pipeline: Annotated[
        bool, typer.Option("--print-pipeline", help="Print what the compiler would run, for covan-opt, and exit.")
    ] = False,
    seed: Seed = 0,
    debug: Debug = False,
) -> None:
    """Compile a model into a .covan artifact.

    FACTORY is an nn.Module in the file, or a function without arguments that returns the model, (model, args) or
    (model, args, kwargs). A model without args needs one --input per argument.

    \b
    covan compile model.py:make -o model.covan
    covan compile model.py:Net -i 1x3x224x224xf32
    covan compile model.py:Net -i 8x128xi64 -i 8x128xbool=true --dynamic 0:0 --dynamic 1:0
    covan compile exported.pt2 --iree-flag=--iree-opt-level=O3
    covan compile model.onnx --dynamic batch=1..64
    covan compile model.tflite --dynamic image:0=1..64
    covan compile model.py:make --tag blocks.0=audit:pii
    covan compile model.py:make --attach features.3.conv=post.py:quantise
    covan compile model.py:make --superoptimise 60 --rules mine.txt
    covan compile model.py:make --dynamic x:0=batch --specialise batch=1,8,32
    """
    from covan_mlir.artifacts import artifact
    from covan_mlir.lowering import pool
    from covan_mlir.provenance.explain import counts
    from covan_mlir.tools import cli_inputs, cli_models

    if rules is not None and not superoptimise:
        raise CliError("--rules are applied by --superoptimise", "say how many seconds, --superoptimise 60", code=2)
    if assume and rules is None:
        raise CliError("--assume is about rules of your own", "say which, --rules FILE", code=2)
    parsed = [cli_inputs.parse(text) for text in inputs or ()]
    path, factory = cli_models.split(model)
    destination = output or f"{path.stem}.covan"
    if not print_pipeline:
        artifact.check_writable(destination)
    _check_target(target)
    tags = _tags(tag or ())
    if not print_pipeline:
        pool.prepare(trace if provenance else "phases")  # torch takes as long to import as the compiler to start
    with Progress("importing torch") as progress:
        import covan_mlir
        from covan_mlir.compile import pipeline_text

        options = covan_mlir.CompileOptions(
            iree_flags=tuple(iree_flag or ()),
            reproducer=reproducer,
            trace=trace,
            winograd=winograd,
            check_indices=check_indices,
            attach=cli_models.attached(attach or ()),
            cache=cache,
            records=None if records == "off" else records,
            superoptimise=superoptimise or False,
            rules=rules,
            assume=assume,
            specialise=cli_models.specialised(specialise or ()),
        )
        progress(f"loading {path.name}")
        example = cli_models.load(path, factory, parsed, seed)
        shapes = cli_models.dynamic_shapes(example, dynamic or ())
        if cli_models.trains(example.model):
            print("covan: note: the model is in training mode; call eval() on it for inference", file=sys.stderr)
        if print_pipeline:
            with torch_is_quiet(context.ensure_object(Session).debug):
                for goal in target.split(","):
                    args, kwargs = example.args, example.kwargs
                    print(pipeline_text(example.model, args, kwargs, goal, dynamic_shapes=shapes, options=options))
            return
        with torch_is_quiet(context.ensure_object(Session).debug):
            executable = covan_mlir.compile_module(
                example.model,
                example.args,
                example.kwargs,
                target=target.split(","),
                dynamic_shapes=shapes,
                provenance=provenance,
                options=options,
                tags=tags,
                progress=progress,
            )
        progress("saving")
        executable.save(destination)
    facts = counts(executable.lineage) if provenance else "no lineage"
    print(f"{destination}: {amount(os.stat(destination).st_size)}, {facts}")
    if executable.versions:
        print(f"versions: {'; '.join(executable.lineage.versions)}")
    done = executable.lineage.substitution
    if done is not None:
        rules_told = ", ".join(dict.fromkeys(step.rule for step in done.steps)) or (
            "nothing predicted to be faster" if done.before else "nothing that rules are about"
        )
        print(f"{len(done.steps)} substitutions: {rules_told}")


@app.command()
def explain(
    file: Artifact,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME|MODULE|FILE.py:LINE|group:NAME|tag:TAG]", help="Show only the sites that perform this."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (docs/cli.md).")] = False,
    as_dot: Annotated[bool, typer.Option("--dot", help="Print the graph of actions and sites for Graphviz.")] = False,
    fusion: Annotated[
        bool, typer.Option("--fusion", help="Show which chains of reductions were fused, with proofs, or why not.")
    ] = False,
    profiled: Annotated[
        str | None,
        typer.Option("--profile", metavar="FILE", help="With --fusion: the times of a profile (covan profile --save)."),
    ] = None,
    target: OneTarget = None,
    version: Annotated[
        str | None, typer.Option("--version", metavar="SIZES", help="Of a program with versions for sizes: batch=8.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Show which kernels perform which operations of the model. Needs neither torch nor a runtime.

    \b
    covan explain model.covan
    covan explain model.covan softmax_1
    covan explain model.covan blocks.0.attn
    covan explain model.covan model.py:42 --json
    covan explain model.covan tag:audit:pii
    covan explain model.covan --dot | dot -Tsvg > lineage.svg
    covan explain model.covan blocks.0.attn --fusion
    covan explain model.covan --fusion --profile times.json
    covan explain model.covan --version batch=8
    """
    from covan_mlir.artifacts import artifact, attachment
    from covan_mlir.provenance import bipartite, trail
    from covan_mlir.provenance.explain import fates_json, fates_text, table, table_json, unperformed

    if as_json and as_dot:
        raise CliError("--json and --dot are two forms of one answer", "give one of them", code=2)
    if fusion and as_dot:
        raise CliError("--fusion has no graph", "leave --dot out, or take --json", code=2)
    if profiled is not None and not fusion:
        raise CliError(
            "--profile gives the times of fused chains", "add --fusion, or see 'covan profile --from'", code=2
        )
    times = None
    with Progress(f"reading {Path(file).name}"):
        contents = artifact.read(file)
        variant = contents.variant(target)
        versions = contents.of_versions(variant)
        lineage = variant.lineage
        if profiled is not None:
            from covan_mlir.profiling import store

            times = store.load(profiled, [variant])
    if version is not None:
        if version not in versions:
            raise CliError(f"{file} has no version {version!r}", f"it has {', '.join(versions) or 'none'}")
        lineage = versions[version].lineage
    if not lineage.actions:
        raise CliError(f"{file} has no lineage", "compile the model again without --no-provenance")
    try:
        actions = lineage.actions if what is None else lineage.find(what)
    except KeyError as error:
        message, _, near = str(error.args[0]).partition("; ")
        raise CliError(message, near or "'covan explain FILE.covan' lists all that there is") from error
    if fusion:
        from covan_mlir.provenance.explain_fusion import fusions, fusions_json, fusions_text, left_over

        records = lineage.fusions if what is None else fusions(lineage, actions)
        left = left_over(lineage, actions)
        if as_json:
            print(json.dumps(fusions_json(lineage, records, times, left), indent=1))
        else:
            print(fusions_text(lineage, records, times, left), end="")
        return
    sites = lineage.sites if what is None else lineage.where(what)
    lost = set(unperformed(lineage)).intersection(actions)
    if as_json:
        value = table_json(lineage, sites)
        value["found"] = [action.name for action in actions]
        value["unperformed"] = [name for name in value["unperformed"] if name in {action.name for action in lost}]
        value["fates"] = fates_json(lineage, actions)
        value["graph"] = bipartite.graph_json(lineage, actions)
        value["versions"] = list(versions)
        value["attachments"] = [attached.to_json() for attached in variant.attachments]
        print(json.dumps(value, indent=1))
        return
    if as_dot:
        print(bipartite.dot(lineage, actions), end="")
        return
    if sites or what is None:
        print(table(lineage, sites), end="")
    if what is None and version is None and versions:
        print(f"\nversions (--version SIZES shows one): {'; '.join(versions)}")
    if what is None and variant.attachments:
        print(f"\n{attachment.text(variant.attachments)}", end="")
    if what is not None:
        told = actions if len(actions) == 1 else [action for action in actions if action in lost]
        print("\n" if sites and told else "", fates_text(lineage, told), sep="", end="")
    if what is not None and len(actions) == 1:
        print(f"\n{trail.of_action(lineage, actions[0])}", end="")


@app.command("verify")
def verify(
    context: typer.Context,
    file: Artifact,
    operators: Annotated[
        bool,
        typer.Option("--operators/--no-operators", help="Evaluate what each site's code computes, on random operands."),
    ] = True,
    values: Annotated[
        bool, typer.Option("--values", help="Also compare every tensor with eager PyTorch; needs --model.")
    ] = False,
    model: FromModel = None,
    inputs: Inputs = None,
    attach: Attach = None,
    iree_flag: IreeFlags = None,
    seed: Seed = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (docs/cli.md).")] = False,
    target: OneTarget = None,
    debug: Debug = False,
) -> None:
    """Check that the lineage of an artifact is true: the source against every phase and the final program.

    Exits with 0 if it holds, 1 if it does not, 3 if not everything could be checked.
    """
    if values:
        cli_compare.require_model(file, model)
    from dataclasses import asdict

    from covan_mlir.artifacts import artifact
    from covan_mlir.checking.verify import verify_all

    with Progress(f"reading {Path(file).name}") as tell:
        contents = artifact.read(file)
        variant = contents.variant(target)
        of_versions = {name: each.lineage for name, each in contents.of_versions(variant).items()}
        tell("verifying")
        verdict = verify_all(variant.lineage, of_versions, operators=operators)
        if values:
            tell("comparing values")
            given = cli_compare.with_model(file, str(model), inputs or (), seed)
            verdict = cli_compare.with_values(context, verdict, given, attach or (), iree_flag or ())
    if as_json:
        print(json.dumps({"outcome": verdict.outcome, **asdict(verdict)}, indent=1))
    else:
        print(verdict)
    raise typer.Exit({"yes": 0, "no": 1, "incomplete": 3}[verdict.outcome])


app.command("devices")(cli_machine.devices)
app.command("machine")(cli_machine.machine)
app.command("cache")(cli_machine.cache)
app.command("run")(cli_run.run)
app.command("extract")(cli_extract.extract)
app.command("info")(cli_signing.info)
app.command("keygen")(cli_signing.keygen)
app.command("sign")(cli_signing.sign)
app.command("verify-signature")(cli_signing.verify_signature)
app.command("profile")(cli_profile.profile)
app.command("compare")(cli_compare.compare)
app.command("quantize")(cli_quantize.quantize)
app.command("report")(cli_report.report)
app.command("diff")(cli_diff.diff)
app.command("tune")(cli_tune.tune)
app.command("records")(cli_tune.records_)
app.command("worker")(cli_tune.worker)


def _tags(values: Sequence[str]) -> dict[str, list[str]]:
    tags: dict[str, list[str]] = {}
    for value in values:
        what, _, text = value.partition("=")
        if not what or not text:
            raise CliError(f"{value!r} tags nothing", "write --tag blocks.0=audit:pii", code=2)
        tags.setdefault(what, []).append(text)
    return tags


def _check_target(target: str) -> None:
    from covan_mlir.errors import TargetError
    from covan_mlir.lowering import targets

    try:
        targets.parse_all(target.split(","))
    except TargetError as error:
        message, _, hint = str(error).partition("; ")
        raise CliError(message, hint or "'covan devices' lists what is here") from error


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        the exit code: 0; 1 after an error; 2 when the command line itself is wrong; 130 after an interrupt.
    """
    session = Session()
    standard_streams.prepare()
    try:
        for argument in sys.argv[1:] if argv is None else argv:
            _check_argument(argument)
        code = app(args=argv, prog_name="covan", standalone_mode=False, obj=session)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output went away, as head does
        standard_streams.discard()
        return 1
    except typer.Abort:
        return 130
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "covan"
        return _report(CliError(error.format_message(), f"see {command} --help", code=error.exit_code))
    except Exception as error:
        if session.debug:
            traceback.print_exc()
        if reason := standard_streams.unwritable(error):
            standard_streams.discard()
            return _report(CliError(reason, "send it somewhere else"))
        return _report(describe(error))
    return code if isinstance(code, int) else 0


def _check_argument(argument: str) -> None:
    """Most arguments are paths or parts of them."""
    try:
        whole_file.check(argument)
    except OSError as error:
        raise CliError(f"{argument!r}: {error.strerror}", "give another path", code=2) from error


def _report(error: CliError) -> int:
    for label, text in (("covan: error", str(error)), ("hint", error.hint)):
        if text:
            print(f"{label}: {CovanError(' '.join(text.split()))}", file=sys.stderr)
    return error.code


if __name__ == "__main__":
    sys.exit(main())
