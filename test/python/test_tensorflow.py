"""Models of TensorFlow, in a process of their own: TensorFlow offers its LLVM to all that is loaded behind it.

Importing it takes ten seconds: the cases of `tensorflow_cases` run one after the other.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from limits import HANG, part

CASES = Path(__file__).with_name("tensorflow_cases.py")
USUAL = (
    "test_a_keras_model_for_any_batch or test_layers_are_modules or test_a_function_and_its_lines or "
    "test_a_saved_model or test_every_tensor_is_compared or (test_a_tflite_file and False) or "
    "test_nodes_that_are_not_converted"
)


@pytest.mark.parametrize("which", part((USUAL, f"not ({USUAL})"), (USUAL,)), ids=["usual", "others"])
def test_models_of_tensorflow(which: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", which, str(CASES)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=2.5 * HANG, check=False)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
