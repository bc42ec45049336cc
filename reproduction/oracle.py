"""The network beside stored outputs and gradients of the authors' network.

`python -m reproduction oracle FOLDER` prints a line a case and exits with 1 if any
differs by more than 1e-9. The folder holds one .npz file a case: weights by role,
inputs, outputs and gradients in float64.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from tabr.candidates.point_index import PointIndex
from tabr.config import STEPS, EmbeddingConfig, EmbeddingKind, NetworkConfig, Task
from tabr.network.rows import Rows
from tabr.network.tabr import Context, TabR
from tabr.tables.shape import DataShape

TOLERANCE = 1e-9
DESIGNS = {
    "tabr": STEPS["step-4"],
    "dp-qk-v": STEPS["step-0"],
    "dp-qk-yv": STEPS["step-1"],
    "l2-k-yv": STEPS["step-2"],
    "l2-k-yt": STEPS["step-3"],
    **{name: STEPS[name] for name in ("dp-k-v", "dp-k-yv", "l2-k-v")},
}


N_CLASSES: dict[Task, int] = {"regression": 0, "binary": 2, "classes": 3}


class Case:
    """One stored case, and our network with its weights."""

    def __init__(self, path: Path) -> None:
        self.arrays = dict(np.load(path))
        design, task_name, shape, *rest = path.name.removesuffix(".npz").split(".")
        (task,) = (task for task in N_CLASSES if task == task_name)
        kinds: list[EmbeddingKind]
        kinds = [kind for kind in get_args(EmbeddingKind) if kind in rest]
        weight = self.tensors("weight/")
        embedding = None
        if kinds:
            frequencies = weight.get("embedding.frequencies", torch.empty(0, 1))
            bias = weight["embedding.linear.bias"]
            embedding = EmbeddingConfig(
                kinds[0], bias.shape[-1], max(1, frequencies.shape[-1])
            )
        width = len(weight["encoder.linear.bias"])
        config = NetworkConfig(
            width=width,
            encoder_blocks=int(shape[1]),
            predictor_blocks=int(shape[3]),
            dropout=0.0,
            context_dropout=0.0,
            embedding=embedding,
            retrieval=DESIGNS[design],
        )
        self.rows, self.labels = self.part("train"), self.tensor("train/label")
        cat = self.rows.cat
        n_levels = (cat.max(0).values + 1).tolist() if cat.numel() else []
        data_shape = DataShape(
            self.rows.num.shape[1],
            self.rows.bin.shape[1],
            tuple(n_levels),
            task,
            N_CLASSES[task],
        )
        self.network = TabR(config, data_shape).double()
        self.m = int(self.arrays["context_size"])
        parameters = dict(self.network.named_parameters())
        lite = "plr-lite" in kinds
        self.names = {role: our_name(role, lite) for role in weight}
        with torch.no_grad():
            for role, name in self.names.items():
                if name in parameters:  # a bias that never matters is not there
                    parameters[name].copy_(weight[role].reshape(parameters[name].shape))
        missing = set(parameters) - set(self.names.values())
        assert not missing, missing

    def tensor(self, name: str) -> Tensor:
        """Return a stored array."""
        return torch.from_numpy(self.arrays[name])

    def tensors(self, prefix: str) -> dict[str, Tensor]:
        """Return all stored arrays of a prefix, by the rest of their names."""
        names = [name for name in self.arrays if name.startswith(prefix)]
        return {name.removeprefix(prefix): self.tensor(name) for name in names}

    def part(self, name: str) -> Rows:
        """Return stored rows."""
        num = self.tensor(f"{name}/num")
        none = torch.empty(len(num), 0)
        cat = self.arrays.get(f"{name}/cat", none.long().numpy())
        bin_ = self.arrays.get(f"{name}/bin", none.numpy())
        return Rows(num, torch.from_numpy(bin_).double(), torch.from_numpy(cat).long())

    def predict(self, rows: Rows, exclude: Tensor | None) -> Tensor:
        """Return outputs of rows, from neighbours among the training rows."""
        candidates = self.network.points(self.rows)
        index = PointIndex(self.network, candidates.detach(), self.labels)
        neighbors = index.neighbors(self.network.points(rows), self.m, exclude)
        position, is_neighbor = neighbors
        context = Context(candidates[position], self.labels[position], is_neighbor)
        prediction: Tensor = self.network(rows, context).prediction
        return prediction

    def differences(self) -> tuple[float, float]:
        """Return the largest difference of outputs and of gradients."""
        batch = self.tensor("batch").long()
        output = self.predict(self.rows.take(batch), batch)
        output.square().sum().backward()
        with torch.no_grad():
            new = self.predict(self.part("new"), None)
        outputs = [
            (output.detach().squeeze(-1) - self.tensor("batch/output").squeeze(-1)),
            (new.squeeze(-1) - self.tensor("new/output").squeeze(-1)),
        ]
        parameters = dict(self.network.named_parameters())
        worst = 0.0
        for role, grad in self.tensors("grad/").items():
            parameter = parameters.get(self.names[role])
            ours = torch.zeros_like(grad)
            if parameter is not None and parameter.grad is not None:
                ours = parameter.grad.reshape(grad.shape)
            worst = max(worst, float((ours - grad).abs().max()))
        return max(float(o.abs().max()) for o in outputs), worst


def our_name(role: str, lite: bool) -> str:
    """Return the name of our parameter that plays the role."""
    exact = {
        "embedding.frequencies": "input.embedding.periodic.frequencies",
        "retrieval.label.table": "label_value.table",
        "retrieval.unknown_label": "unknown_label",
    }
    if role in exact:
        return exact[role]
    *path, kind = role.split(".")
    prefix = {
        "embedding.linear": "input.embedding.linear" if lite else "input.embedding",
        "encoder.linear": "linear",
        "retrieval.norm": "norm",
        "retrieval.query": "to_query",
        "retrieval.key": "to_key",
        "retrieval.row_value": "row_value",
        "retrieval.label": "label_value",
        "retrieval.difference.first": "difference_value.first",
        "retrieval.difference.second": "difference_value.second",
        "head.norm": "head.0",
        "head.linear": "head.2",
    }.get(".".join(path))
    if prefix is None:  # encoder.block0.first -> encoder.0.first
        module, block, layer = path
        prefix = f"{module}.{block.removeprefix('block')}.{layer}"
    return f"{prefix}.{kind}"


def compare_folder(folder: Path) -> tuple[int, int]:
    """Print a line for each case of a folder; return how many agree, and their number.

    To agree is to differ by less than 1e-9.
    """
    paths = sorted(folder.glob("*.npz"))
    n_agreeing = 0
    for path in paths:
        output, gradient = Case(path).differences()
        n_agreeing += max(output, gradient) < TOLERANCE
        print(f"{path.stem:45} outputs {output:.1e}  gradients {gradient:.1e}")
    print(f"{n_agreeing} of {len(paths)} cases agree to {TOLERANCE:g}")
    return n_agreeing, len(paths)
