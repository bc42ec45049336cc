"""Methods that are networks: the training loop of TabR, with networks of their own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tabr.bench.methods.base import ArrayMethod, Encoded, Floats, Setting
from tabr.config import EmbeddingConfig, EmbeddingKind, TrainingConfig
from tabr.device.cuda_graphs import Lane
from tabr.errors import ParameterError
from tabr.metrics import Score
from tabr.network.rows import Rows
from tabr.tables.preprocessor import Arrays
from tabr.tables.shape import DataShape
from tabr.training.loop import History, Job, fit_networks, seeded
from tabr.training.losses import row_losses
from tabr.training.optimizers import Stepper

# The place of each parameter in the published configurations of all networks.
PUBLISHED_TRAINING: Mapping[str, str] = {
    "learning_rate": "optimizer.lr",
    "weight_decay": "optimizer.weight_decay",
    "batch_size": "batch_size",
    "patience": "patience",
}
PUBLISHED_EMBEDDING: Mapping[str, str] = {
    "embedding_width": "model.num_embeddings.d_embedding?",
    "n_frequencies": "model.num_embeddings.n_frequencies?",
    "frequency_scale": "model.num_embeddings.frequency_scale?",
}
# What `TrainingConfig` has for TabR alone.
OF_TABR = {"freeze_after", "record_context", "label_smoothing"}


@dataclass(frozen=True)
class EmbeddedConfig:
    """How numbers come in; without an `embedding` they stay as they are."""

    embedding: EmbeddingKind | None = None
    embedding_width: int = 24
    n_frequencies: int = 48
    frequency_scale: float = 0.1
    numbers: EmbeddingConfig | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Make `numbers`, which a network takes."""
        if self.embedding is not None:
            shape = self.embedding_width, self.n_frequencies, self.frequency_scale
            object.__setattr__(self, "numbers", EmbeddingConfig(self.embedding, *shape))


class NeuralMethod(ArrayMethod):
    """A network trained by AdamW until the validation score stops improving.

    A subclass writes `config_type`, `build` and `search_space`. A network that also
    reads training rows needs `loss` and `outputs` too: they are in `rows` and their
    labels in `labels`, both on `device`. What all chunks of a prediction share goes to
    `prepare`.

    NOTE[DIFF]: the paper spares biases and normalisations from weight decay; the runs
    behind its figures decayed all parameters, and so do these.

    Attributes:
        config_type: The dataclass of its parameters, beside those of the training.
        training_defaults: The training, where the constructor gets nothing else.
        captures: Whether a step can be a CUDA graph.
        rows_at_a_time: Rows of a prediction that are computed at once.
    """

    has_batches: ClassVar[bool] = True
    config_type: ClassVar[type[Any]]
    training_defaults: ClassVar[TrainingConfig] = TrainingConfig(
        learning_rate=0.001, weight_decay=1e-5, mode="paper"
    )
    captures: ClassVar[bool] = True
    rows_at_a_time = 4096

    network: nn.Module
    rows: Rows
    labels: Tensor
    history: History

    def __init__(self, setting: Setting, seed: int, **params: Any) -> None:
        """Keep the parameters: fields of `TrainingConfig` and of `config_type`.

        A name that both have is the network's.
        """
        super().__init__(setting, seed)
        own = {part.name for part in fields(self.config_type)}
        common = {part.name for part in fields(TrainingConfig)} - own
        strange = sorted(params.keys() & common & OF_TABR)
        if strange:
            raise ParameterError(
                f"{', '.join(sorted(OF_TABR))} belong to the training of TabR, however"
                f" {', '.join(strange)} came to {type(self).__name__}: leave it out"
            )
        training = {name: params.pop(name) for name in params.keys() & common}
        self.training = replace(self.training_defaults, **training)
        self.config = self.config_type(**params)

    @abstractmethod
    def build(self, schema: DataShape) -> nn.Module:
        """Return a new network, by default from `Rows` to outputs (b, n_outputs)."""

    def optimizer(self) -> Stepper | None:
        """Return the optimizer of the network; None is AdamW."""
        return None

    # --- one step, one prediction ---------------------------------------------------

    def loss(self, index: Tensor) -> Tensor:
        """Return the mean loss of the training rows at index (b,)."""
        output = self.network(self.rows.take(index))
        return row_losses(output, self.labels[index], self.task).mean()

    def prepare(self) -> None:
        """Compute what all chunks of a prediction share, by the present weights."""

    def outputs(self, rows: Rows) -> Tensor:
        """Return outputs (n, n_outputs) for rows, each independent of the others."""
        out: Tensor = self.network(rows)
        return out

    def outputs_of(self, logits: Tensor) -> Tensor:
        """Return the outputs (n, n_outputs) of logits for each class (n, n_classes)."""
        return logits[:, 1:] - logits[:, :1] if self.task == "binary" else logits

    # --- the whole fit ----------------------------------------------------------------

    def _fit(self, train: Encoded, val: Encoded, score: Score) -> None:
        self.rows = Rows.from_arrays(train.arrays, self.device)
        self.labels = torch.from_numpy(train.labels).to(self.device)
        validation = Rows.from_arrays(val.arrays, self.device)
        schema = DataShape(
            n_num=train.arrays.num.shape[1],
            n_bin=train.arrays.bin.shape[1],
            cardinalities=self.preprocessor.cardinalities,
            task=self.task,
            n_classes=self.target.n_classes,
        )
        with seeded(self.seed, self.device) as generator:
            lane = Lane(self.device, self.seed, captures=self.captures)
            with lane:
                self.network = self.build(schema).to(self.device)
            job = Job(
                self.network,
                self.loss,
                lambda: self._all_outputs(validation),
                lambda output: score(self.decoded(output.cpu().numpy())),
                generator,
                lane,
                watch=self.setting.report,
                optimizer=self.optimizer(),
            )
            (self.history,) = fit_networks([job], train.n_rows, self.training)
        self.best_epoch = self.history.best_epoch

    @torch.no_grad()
    def _predict(self, arrays: Arrays) -> Floats:
        rows = Rows.from_arrays(arrays, self.device)
        outputs: Floats = self._all_outputs(rows).cpu().numpy()
        return outputs

    def _all_outputs(self, rows: Rows) -> Tensor:
        self.prepare()
        size = self.rows_at_a_time
        parts = [
            self.outputs(rows.take(slice(start, start + size)))
            for start in range(0, max(1, rows.n_rows), size)
        ]
        return torch.cat(parts)

    def decoded(self, output: Floats) -> NDArray[np.float64]:
        """Return values (n,) or probabilities (n, classes) of outputs (n, k)."""
        return self.target.predictions(output)

    @property
    def n_parameters(self) -> int | None:
        """The number of trained parameters."""
        return sum(p.numel() for p in self.network.parameters())
