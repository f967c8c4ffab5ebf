"""`Executable`: a compiled model that users call, ask, measure, compare and save."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from covan_mlir.errors import CovanError
from covan_mlir.lineage import Lineage
from covan_mlir.provenance.explain import counts
from covan_mlir.provenance.model import Action, Site
from covan_mlir.runtime.compiled import CompiledModel
from covan_mlir.runtime.compiled_program import CompiledProgram
from covan_mlir.support import fragments

if TYPE_CHECKING:
    from covan_mlir.checking.verdict import Verification
    from covan_mlir.comparing.compare import CompareOptions
    from covan_mlir.comparing.comparison import Comparison
    from covan_mlir.compilation.origin import Origin
    from covan_mlir.profiling.profile import Profile
    from covan_mlir.reporting.report import Compared, TimedProgram


class Executable(CompiledModel):
    """A compiled model. Call it as the model: same arguments, same results.

    Safe to call from several threads; calls of one executable take turns.

    Attributes:
        origin: the model it was compiled from; None if it comes from a file.
    """

    def __init__(self, compiled: CompiledProgram, origin: Origin | None = None) -> None:
        self.origin = origin
        super().__init__(compiled)
        self._lineage = Lineage.of(self.variant.lineage)
        self._lineage.versions = {
            ", ".join(map(str, version.ranges)): version.lineage
            for version in self.versions
            if isinstance(version, Executable)
        }

    def version_for(self, *args: Any, **kwargs: Any) -> Executable:
        """What a call with these arguments runs; see `CompiledModel.version_for`."""
        version = super().version_for(*args, **kwargs)
        assert isinstance(version, Executable)
        return version

    def _of_version(self, compiled: CompiledProgram, number: int) -> Executable:
        return Executable(compiled, self.origin.versions[number] if self.origin is not None else None)

    @property
    def lineage(self) -> Lineage:
        """Which source action became which site."""
        return self._lineage

    def explain(self, what: Action | int | str | None = None) -> str:
        """Text table of what each site performs; see `Lineage.explain`. Versions for some sizes follow the general
        program, each under its sizes."""
        texts = [self.lineage.explain(what)]
        texts += [f"version {name}: {lineage.explain(what)}" for name, lineage in self.lineage.versions.items()]
        return "\n".join(texts)

    def why(self, site: Site | int, version: str = "") -> tuple[Action, ...]:
        """The actions that a site performs; see `Lineage.why`.

        Args:
            version: the sizes of the version whose site it is, as `Lineage.versions` has them (``batch=8``); empty: of
                the general program.

        Raises:
            KeyError: there is no such site or version.
        """
        if version and version not in self.lineage.versions:
            known = ", ".join(self.lineage.versions) or "none"
            raise KeyError(f"there is no version {version!r}; there is {known}")
        return (self.lineage.versions[version] if version else self.lineage).why(site)

    def verify(
        self,
        values: tuple[Any, ...] | None = None,
        named: Mapping[str, Any] | None = None,
        model: Any = None,
        *,
        operators: bool = True,
        options: CompareOptions | None = None,
    ) -> Verification:
        """Check that the lineage is true: the source model against every observed phase and the final program.

        Weak bisimulation of the action-reflected graphs, up to what each site is said to perform; fates against both.
        Of a program with versions for some sizes, each is checked: their checks have the sizes before the phase.
        The result is true only if every check ran to its end and holds; it says where and why it does not.

        Args:
            values: arguments on which every tensor is compared with eager PyTorch as well, as `compare` does.
            named: with ``values``, arguments by name.
            model: with ``values``, what the program was compiled from; needed for an executable from a file.
            operators: whether what each site's own code computes is evaluated beside the operators that it is said to
                perform, at random positions of its results: up to some seconds of large programs.
            options: with ``values``, how they are compared, and what a file does not say of the compilation.

        Raises:
            InputError: the values do not fit, eager PyTorch fails on them, or the model is another or missing; or a
                file says that it was compiled with options that run code, and ``options.compiled_with`` does not.
        """
        from covan_mlir.checking.verdict import Verification
        from covan_mlir.checking.verify import verify_all

        verdict = verify_all(self.lineage, self.lineage.versions, operators=operators)
        if values is None:
            return verdict
        from covan_mlir.comparing.values import check_values

        arguments = (values, dict(named or {}))
        serving = self.version_for(*arguments[0], **arguments[1])
        if serving is not self:
            checked = serving.verify(values, named, model, operators=False, options=options)
            return Verification((*verdict.checks, checked.checks[-1]))
        leaves = self.checked(*arguments).leaves
        return Verification((*verdict.checks, check_values(self, self.origin, leaves, model, arguments, options)))

    def compare(
        self,
        *args: Any,
        model: Any = None,
        options: CompareOptions | None = None,
        progress: Callable[[str], None] | None = None,
        **kwargs: Any,
    ) -> Comparison:
        """Compare the compiled program with eager PyTorch on these arguments, tensor by tensor.

        The model is compiled again with all its tensors as results; programs run in processes of their own, so that
        one that crashes is a finding. Needs torch and the compiler.

        Args:
            model: what the program was compiled from; needed for an executable from a file.
            options: see `CompareOptions`.
            progress: is told the name of each step before it runs.

        Raises:
            InputError: the arguments do not fit, eager PyTorch fails on them, or the model is another or missing.
        """
        from covan_mlir.comparing.compare import compare

        if (serving := self.version_for(*args, **kwargs)) is not self:
            return serving.compare(*args, model=model, options=options, progress=progress, **kwargs)
        leaves = self.checked(args, kwargs).leaves
        return compare(self, self.origin, leaves, model, (args, kwargs), options, progress or (lambda step: None))

    def profile(self, *args: Any, repeat: int = 50, **kwargs: Any) -> Profile:
        """Time each site over many calls, and tell which actions, modules and source lines the time goes to.

        The model's state and mutated arguments keep their values. The calls run in another process (docs/profiling.md).

        Args:
            args, kwargs: as for a call.
            repeat: how many calls are timed, after a few that are not.

        Raises:
            InputError, DeviceError: as for a call.
            ProfileError: the device gives no times, or what ran is not what the lineage lists.
        """
        from covan_mlir.profiling import run

        return run.profile(self.version_for(*args, **kwargs), args, kwargs, repeat=repeat)

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        profile: TimedProgram | Mapping[int, float] | None = None,
        comparison: Compared | Mapping[int, float] | None = None,
        title: str = "",
        source: bool = True,
    ) -> None:
        """Write source code, source graph and compiled graph side by side, as one HTML file (docs/report.md).

        Args:
            path: the file, replaced if it exists.
            profile: what `profile` gave, or seconds by site: colours by time.
            comparison: what a comparison with eager gave, or errors by action: colours by error.
            title: of the page.
            source: show the text of source lines, where their files can be read.

        Raises:
            InputError: there is no lineage, or the profile or comparison is of another program.
            CovanError: the file cannot be written.
        """
        from covan_mlir.reporting import report

        report.write(
            path,
            self.lineage,
            title=title,
            target=self.target,
            profile=profile,
            comparison=comparison,
            source=source,
        )

    def kernel_code(self, site: Site | int) -> bytes:
        """Code of the kernel that a site runs, as the program holds it: machine code for CPUs, the text of a PTX module
        for CUDA, a SPIR-V module for Vulkan.

        Raises:
            KeyError: there is no such site.
            CovanError: the program does not say where the kernel's code is: the site is no kernel but a copy or a fill,
                or the program is without debug symbols.
        """
        from covan_mlir.artifacts import machine_code

        kernel = self.lineage.site(site).kernel
        kind = self.target.partition(":")[0]
        read = {"vulkan": machine_code.spirv, "cuda": machine_code.ptx}.get(kind, machine_code.kernels)
        code = read(self.variant.program).get(kernel)
        if code is None:
            hint = "" if kind in ("vulkan", "cuda") else ": compile it without --iree-llvmcpu-debug-symbols=false"
            raise CovanError(f"the program does not say where the code of {kernel or 'this site'} is{hint}")
        return code

    def _repr_html_(self) -> str:
        """For notebooks: what it takes and gives, what runs it, and its lineage."""
        signature = self.signature
        leaves = [*(("takes", leaf) for leaf in signature.inputs), *(("gives", leaf) for leaf in signature.outputs)]
        rows = [[how, leaf.name, leaf.type_string()] for how, leaf in leaves]
        rows += [["changes", state.name, f"{state.dtype}{list(state.shape)}"] for state in signature.states]
        runs = f"runs on {self.driver}" if self.driver else "this machine cannot run it"
        return fragments.whole(
            "executable",
            [
                fragments.paragraph(f"Executable for {self.target}; {runs}", strong=True),
                fragments.table(("", "name", "type"), rows),
                fragments.folded(counts(self.lineage), self.lineage._repr_html_()) if self.lineage.actions else "",
            ],
        )

    def __repr__(self) -> str:
        return f"<Executable for {self.target}: {len(self.signature.inputs)} inputs, {self.lineage!r}>"
