"""`compile_training_step`: forward, backward and optimizer of a model as one program."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from covan_mlir.compilation.options import CompileOptions
from covan_mlir.compile import compile_capture
from covan_mlir.errors import InputError
from covan_mlir.executable import Executable
from covan_mlir.frontend.capture import Capture, capture
from covan_mlir.frontend.dtypes import NAMES
from covan_mlir.lineage import Lineage
from covan_mlir.provenance.tags import Tags
from covan_mlir.support.collector import uncollected
from covan_mlir.support.interrupts import orderly
from covan_mlir.support.kept_pages import keep_pages
from covan_mlir.training.functional import Functional, functional
from covan_mlir.training.graphs import GraphProgram, program_of
from covan_mlir.training.joint import Joint, Learned, joint_graph, state_name
from covan_mlir.training.optimizers import Optimizer, rule_of

LARGE = 16 << 20
"""Bytes of state from which on its memory is kept from step to step (`keep_pages`)."""
_MODEL = "model."
"""Before the paths of the model in the module that computes its loss."""


@orderly()
@uncollected()
def compile_training_step(
    model: nn.Module,
    loss: Callable[..., Tensor],
    optimizer: Optimizer,
    example: tuple[Any, Any],
    *,
    clip_grad_norm: float | None = None,
    target: str | Sequence[str] = "cpu",
    provenance: bool = True,
    options: CompileOptions | None = None,
    tags: Tags | None = None,
    progress: Callable[[str], None] | None = None,
) -> TrainingStep:
    """Compile a step of training: the model, its loss, the gradients, and what the optimizer does with them.

    The step is one program. It holds the model's parameters and buffers and what the optimizer keeps of them, copied
    from the model as it is now, and changes them at each call; the model itself stays as it is.

    Args:
        model: in the mode, training or evaluation, in which it is to run.
        loss: from the model's result and the targets to one number, such as ``torch.nn.functional.cross_entropy``.
        optimizer: ``torch.optim``'s SGD, Adam or AdamW of the model's parameters, in as many groups as it has, or what
            makes one of them (``lambda parameters: torch.optim.AdamW(parameters, lr=1e-3)``). Parameters that it does
            not have stay as they are. Its learning rates are read at each call, so schedules of torch work.
        example: arguments of the model, and those of the loss behind the model's result: a tensor each, or a tuple.
        clip_grad_norm: the largest norm that all gradients together may have; larger ones are scaled.
        target, provenance, options, tags, progress: see `compile_module`.

    Raises:
        ExportError: the model or its loss does not export, or draws random numbers that depend on what it computes.
        InputError: the optimizer is none of these, or changes nothing; the loss is not one number.
        CompileError, TargetError: see `compile_module`.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"model is an nn.Module whose parameters are learned, not a {type(model).__name__}")
    if not isinstance(example, tuple | list) or len(example) != 2:
        raise InputError("example is a pair: arguments of the model, and those of the loss behind the model's result")
    chosen = optimizer if isinstance(optimizer, torch.optim.Optimizer) else optimizer(model.parameters())
    learned = _learned(model, chosen)
    inputs, targets = map(_tuple, example)
    leaves, structure = pytree.tree_flatten((inputs, targets))
    parts: list[_Parts] = []

    def export() -> Capture:
        captured = capture(_Loss(model, loss), (inputs, targets), {}, None)
        source = functional(captured, _MODEL, learned, leaves)
        joint = joint_graph(source.module, source.arguments, source.names, learned, clip_grad_norm)
        program = program_of(joint.module, _held(source, joint, chosen, learned), joint.updates)
        states = dict(program.program.state_dict)
        parts.append(_Parts(source, joint, program, states))
        return Capture(program.program, None, (), states=states)

    exe = compile_capture(
        export,
        target=target,
        provenance=provenance,
        options=options or CompileOptions(),
        tags=tags,
        tell=progress or (lambda step: None),
    )
    if sum(value.nbytes for value in parts[-1].states.values()) > LARGE:
        keep_pages()
    return TrainingStep(exe, parts[-1], model, chosen, learned, structure)


@dataclass(frozen=True)
class _Parts:
    """What a step of training is made of."""

    source: Functional
    joint: Joint
    program: GraphProgram
    states: dict[str, Tensor]


class TrainingStep:
    """A compiled step of training. A call makes the step, and gives the loss before it.

    Safe to call from several threads; calls take turns.

    Attributes:
        executable: the program: its lineage says of each site whose gradient it computes, or which parameter it
            changes.
        optimizer: whose learning rates are read at each call.
        steps: how many steps have been made.
    """

    def __init__(
        self,
        executable: Executable,
        parts: _Parts,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        learned: Mapping[str, Learned],
        structure: pytree.TreeSpec,
    ) -> None:
        self.executable = executable
        self.optimizer = optimizer
        self.steps = _steps(optimizer)
        self._parts, self._states, self._learned, self._structure = parts, parts.states, learned, structure
        self._initial: dict[str, Tensor] = {name: value.detach().clone() for name, value in model.state_dict().items()}
        self._lock = threading.RLock()

    @property
    def lineage(self) -> Lineage:
        """Which action of the model, gradient or update became which site."""
        return self.executable.lineage

    def __call__(self, inputs: Any, targets: Any) -> Tensor:
        """Make one step.

        Args:
            inputs, targets: as in the example that the step was compiled with.

        Raises:
            InputError: they do not fit, or an option of the optimizer was changed that is built in.
        """
        leaves, structure = pytree.tree_flatten((_tuple(inputs), _tuple(targets)))
        if structure != self._structure:
            raise InputError(f"the arguments are {structure}; the step was compiled for {self._structure}")
        source, joint, program = self._parts.source, self._parts.joint, self._parts.program
        for name, value, example in zip(
            source.names[source.held :], leaves, source.arguments[source.held :], strict=True
        ):
            if isinstance(example, Tensor) and _type(value) != _type(example):
                raise InputError(f"{name} is {_type(value)}; the step was compiled for {_type(example)}")
        with self._lock:
            numbers = self._numbers(self.steps + 1)
            given = [*[None] * source.held, *leaves, *[None] * len(joint.kept), *numbers]
            (loss,) = program.call(self.executable, given)
            self.steps += 1
        assert isinstance(loss, Tensor)
        return loss

    def _numbers(self, step: int) -> list[Tensor]:
        groups = self.optimizer.param_groups
        rules = {learned.group: learned.rule for learned in self._learned.values()}
        at: dict[int, Mapping[str, float]] = {}
        for group, rule in rules.items():
            changed = [name for name, value in rule.fixed.items() if groups[group][name] != value]
            if changed:
                raise InputError(f"the optimizer's {', '.join(changed)} cannot change any more: compile the step again")
            at[group] = rule.numbers_at(groups[group], step)
        return [torch.tensor(at[group][name], dtype=dtype) for group, name, dtype in self._parts.joint.numbers]

    def state_dict(self) -> dict[str, Any]:
        """All that the step holds, copied: ``model`` and ``optimizer`` as ``load_state_dict`` of the model and of the
        optimizer take them, and the number of ``steps``."""
        with self._lock:
            kept: dict[int, dict[str, Tensor]] = {}
            for name, one in self._learned.items():
                if one.rule.keeps and self.steps:
                    own = {key: self._states[state_name(name, key)].clone() for key in one.rule.keeps}
                    kept[one.index] = {**({"step": torch.tensor(float(self.steps))} if one.rule.counts else {}), **own}
            groups = copy.deepcopy(self.optimizer.state_dict()["param_groups"])
            model = {name: self._value(name).clone() for name in self._initial}
            return {"model": model, "optimizer": {"state": kept, "param_groups": groups}, "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave.

        Raises:
            InputError: it is of another model or optimizer; nothing was changed.
        """
        with self._lock:
            new = dict(self._new_states(state))
            groups = state["optimizer"]["param_groups"]
            if len(groups) != len(self.optimizer.param_groups):
                raise InputError(f"the optimizer has {len(self.optimizer.param_groups)} groups, not {len(groups)}")
            self._states.update(new)
            for own, group in zip(self.optimizer.param_groups, groups, strict=True):
                own.update({key: value for key, value in group.items() if key != "params"})
            self.steps = int(state["steps"])

    def _new_states(self, state: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
        """By name, what the program is to hold."""
        for name in self._initial:
            value, own = state["model"].get(name), self._value(name)
            if value is None or value.shape != own.shape:
                raise InputError(f"{name} is {_type(value)}, and the model's {_type(own)}")
            held = self._parts.source.same.get(name, name)
            if held in self._states:
                yield held, value.detach().to(own.dtype, copy=True)
            elif not torch.equal(value, own):
                raise InputError(f"{name} is not what is built into the program: compile the step again")
        for name, one in self._learned.items():
            kept = state["optimizer"]["state"].get(one.index, {})
            for key in one.rule.keeps:
                own = self._states[state_name(name, key)]
                value = kept.get(key, None if state["steps"] else torch.zeros_like(own))
                if value is None or value.shape != own.shape:
                    raise InputError(f"the optimizer's {key} of {name} is {_type(value)}, not {_type(own)}")
                yield state_name(name, key), value.detach().to(own.dtype, copy=True)

    def _value(self, name: str) -> Tensor:
        """Of a parameter or buffer of the model, now."""
        return self._states.get(self._parts.source.same.get(name, name), self._initial[name])

    def __repr__(self) -> str:
        return f"<TrainingStep of {len(self._learned)} parameters for {self.executable.target}: {self.lineage!r}>"


class _Loss(nn.Module):
    """A model and its loss."""

    def __init__(self, model: nn.Module, loss: Callable[..., Tensor]) -> None:
        super().__init__()
        self.training = model.training
        self.model = model
        self._loss = loss

    def forward(self, inputs: tuple[Any, ...], targets: tuple[Any, ...]) -> Tensor:
        loss: Tensor = self._loss(self.model(*inputs), *targets)
        return loss


def _tuple(part: Any) -> tuple[Any, ...]:
    return tuple(part) if isinstance(part, tuple | list) else (part,)


def _type(value: Any) -> str:
    kind = NAMES.get(value.dtype, value.dtype) if isinstance(value, Tensor) else ""
    return f"{kind}{list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def _learned(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Learned]:
    """What an optimizer changes, by the names that the model has for it."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    learned: dict[str, Learned] = {}
    index = 0
    for number, group in enumerate(optimizer.param_groups):
        rule = rule_of(optimizer, group)
        for parameter in group["params"]:
            if id(parameter) not in names:
                raise InputError(f"parameter {index} of the optimizer, {_type(parameter)}, is none of the model's")
            if parameter.requires_grad:
                learned[names[id(parameter)]] = Learned(rule, number, index, type(optimizer).__name__)
            index += 1
    return learned


def _held(
    source: Functional, joint: Joint, optimizer: torch.optim.Optimizer, learned: Mapping[str, Learned]
) -> dict[int, tuple[str, Tensor]]:
    """What the program holds itself, by position among the arguments of its graph."""
    arguments = dict(zip(source.names, source.arguments, strict=True))
    held = {position: (name, arguments[name].detach()) for position, name in enumerate(source.names[: source.held])}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for position, (name, key) in enumerate(joint.kept, len(source.names)):
        before = optimizer.state.get(parameters[learned[name].index], {}).get(key)
        value = torch.zeros_like(arguments[name]) if before is None else before.detach().clone()
        held[position] = state_name(name, key), value
    return held


def _steps(optimizer: torch.optim.Optimizer) -> int:
    """How many steps an optimizer has made, as far as it knows: one that does not count has made some, or none."""
    states = optimizer.state.values()
    return max((int(state.get("step", state.get("momentum_buffer") is not None)) for state in states), default=0)
