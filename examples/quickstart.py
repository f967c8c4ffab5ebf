"""Compile a model, run it, and ask where an operation went."""

import torch
from torch import nn

import covan_mlir

model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 10)).eval()
x = torch.randn(8, 64)

exe = covan_mlir.compile_module(model, (x,))
assert torch.allclose(exe(x), model(x), atol=1e-5)

print(exe.explain())  # every kernel, and the operations of the model that it performs
print(exe.lineage.where("gelu"))  # the dispatches that perform this operation
