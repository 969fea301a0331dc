"""Makes the files of this folder with the stock exporter (executorch 1.5.1, torch 2.13.0): python export.py"""

from pathlib import Path

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge, to_edge_transform_and_lower

FOLDER = Path(__file__).parent


class State(torch.nn.Module):
    """Constants, state, a dynamic dimension and lists."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.linear.weight = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4))
        self.linear.bias = torch.nn.Parameter(torch.tensor([0.5, 1.5, 2.5]))
        self.register_buffer("state", torch.zeros(1, 3))

    def forward(self, x):
        y = self.linear(x)
        self.state.copy_(self.state + y[:1])
        z = torch.cat([y, x[:, 1:]], 1)
        return torch.index_select(z, 1, torch.tensor([0, 2])), self.state + y[:1]


class Delegated(torch.nn.Module):
    """A linear that XNNPACK takes, its weights as named data."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x):
        return torch.erf(self.linear(x))


class Product(torch.nn.Module):
    """One of several methods over the same weights."""

    def __init__(self, linear, factor):
        super().__init__()
        self.linear = linear
        self.factor = factor

    def forward(self, x):
        return self.linear(x) * self.factor


class Picked(torch.nn.Module):
    """Without constants, so that the file has neither extended header nor data; indices, some of them left out."""

    def forward(self, x, i):
        return x[:, i].relu()


class Branch(torch.nn.Module):
    """A condition, which becomes jumps and moves."""

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))


def save(name, edge):
    (FOLDER / name).write_bytes(edge.to_executorch().buffer)


torch.set_grad_enabled(False)
torch.manual_seed(0)
rows = torch.export.Dim("rows", min=1, max=8)
state = torch.export.export(State(), (torch.randn(5, 4),), dynamic_shapes=({0: rows},))
metadata = {"get_n": 7, "get_f": 1.5, "get_b": True}
config = EdgeCompileConfig(_check_ir_validity=False)
save("state.pte.golden", to_edge(state, constant_methods=metadata, compile_config=config))
delegated = torch.export.export(Delegated(), (torch.randn(5, 4),))
save("delegate.pte.golden", to_edge_transform_and_lower(delegated, partitioner=[XnnpackPartitioner()]))
save("branch.pte.golden", to_edge(torch.export.export(Branch(), (torch.randn(2, 2),))))

picked = torch.export.export(Picked(), (torch.randn(2, 3), torch.tensor([2, 0, 2, 1])))
save("picked.pte.golden", to_edge(picked))

shared = torch.nn.Linear(4, 3)
shared.weight = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4))
shared.bias = torch.nn.Parameter(torch.tensor([0.5, 1.5, 2.5]))
methods = {f"times{n}": torch.export.export(Product(shared, n), (torch.randn(2, 4),)) for n in (1, 3)}
external = to_edge(methods).to_executorch(ExecutorchBackendConfig(external_constants=True))
(FOLDER / "external.pte.golden").write_bytes(external.buffer)
external.write_tensor_data_to_file(str(FOLDER))
for file in FOLDER.glob("*.ptd"):
    file.rename(FOLDER / "external.ptd.golden")
