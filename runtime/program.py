"""A loaded program: IREE's VM context around a vmfb, callable from several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import iree.runtime as rt
import numpy as np

from covan_mlir.artifacts.signature import PARAMETER_SCOPE
from covan_mlir.errors import CovanError
from covan_mlir.runtime import devices, failures, team
from covan_mlir.support.typed_json import short


class Program:
    """A vmfb on a device.

    Attributes:
        device: the HAL device it runs on.
    """

    def __init__(
        self,
        program: bytes | memoryview,
        function: str,
        driver: str,
        weights: Mapping[str, np.ndarray[Any, Any]],
        check: Callable[[Any], None],
    ) -> None:
        """Load the program and run its initialisers.

        Args:
            driver: of IREE's, or `covan_mlir.runtime.team.DRIVER`.
            program: the vmfb; kept alive and not copied if its memory is 64-byte aligned.
            weights: raw bytes of the tensors that the program reads from outside, by parameter name.
            check: is given the function before anything of the program runs, and raises if it is not the one expected.

        Raises:
            DeviceError: the device is not to be had, or its driver refuses the program.
            CovanError: the program does not fit this runtime.
        """
        self.device = devices.device(team.hal(driver))
        self._driver = driver
        instance = devices.instance()
        modules = [rt.create_hal_module(instance, self.device)]
        self._weights = dict(weights)  # the index reads them where they are
        if weights:
            index = rt.ParameterIndex()
            for name, data in weights.items():
                index.add_buffer(name, data)
            modules.append(rt.create_io_parameters_module(instance, index.create_provider(scope=PARAMETER_SCOPE)))
        try:
            module = rt.VmModule.copy_buffer(instance, program)
            self._function = module.lookup_function(function)
            if self._function is None:
                raise CovanError(f"the program has no function {short(function)}")
            check(self._function)
            self._context = rt.VmContext(instance, [*modules, module])
            if driver == team.DRIVER:
                team.share(self._context, module)
        except failures.RAISED as error:
            raise failures.loading(error, driver) from error
        self._lock = threading.Lock()

    def invoke(self, arguments: Sequence[Any], results: int) -> Any:
        """Run once. Buffer views are passed as they are, ints and floats by value.

        Returns:
            the VM's list of results; read it with ``get_as_object`` and ``get_variant``.

        Raises:
            DeviceError: the device is out of memory, or failed.
            CovanError: the program failed; the runtime's words follow.
        """
        packed = rt.VmVariantList(len(arguments))
        for argument in arguments:
            if isinstance(argument, rt.HalBufferView):
                packed.push_ref(argument)
            elif isinstance(argument, float):
                packed.push_float(argument)
            else:
                packed.push_int(argument)
        out = rt.VmVariantList(results)
        # A VM context is no thread's friend: one call at a time, and the device's threads work for it.
        with self._lock:
            try:
                self._context.invoke(self._function, packed, out)
            except failures.RAISED as error:
                raise failures.running(error, self._driver) from error
        return out
