import torch

import covan_mlir


def model(x, w):
    hidden = torch.nn.functional.gelu(x @ w)
    return torch.softmax(hidden, dim=-1)


x, w = torch.randn(8, 64), torch.randn(64, 128)
exe = covan_mlir.compile_module(model, (x, w))
assert torch.allclose(exe(x, w), model(x, w), atol=1e-5)
print(exe.explain())
