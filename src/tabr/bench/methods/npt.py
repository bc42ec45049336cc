"""NPT-Base, a non-parametric transformer (Kossen et al., 2021).

The network reads a batch of rows as a table whose last column is the label, and a table
without holes comes out. It attends between rows, then between columns, and so on. In
training it fills holes, cells and labels that were hidden by chance; what counts is at
first the cells alone and in the end the labels alone. A row is predicted beside
training rows with their labels. The optimizer is LAMB with Lookahead; its learning rate
falls in the last third.

As in the official code, keys and values are made of what was not normalised, scores are
scaled by the whole width and not that of a head, and the shortcut around an attention
is a linear layer.

NOTE[DIFF]: the official code trains and predicts with the rows of all parts in a batch,
hidden labels apart. Here only training rows train, and a row to be predicted attends to
itself and to training rows: as many as a batch, drawn once by the seed. Its prediction
depends on no other row's.

NOTE[DIFF]: the paper speaks of 2000 epochs. Its training times allow that many steps of
4096 rows, which is how the official code counts; so do the runs here. Nothing is tuned.

NOTE[DIFF]: how many labels the paper's runs hid is not said. All of them, always, is
the official code's default, and gives the paper's result on california; the 15 percent
of its scripts for larger tables gave a clearly worse one.

NOTE[DIFF]: LAMB measures tensors, and the vectors of all columns are one tensor here.

NOTE[DIFF]: binary columns are numbers, and a category without a level is a hole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from tabr.bench.methods.layers import Attention, CategoryVectors
from tabr.bench.methods.neural import NeuralMethod
from tabr.bench.methods.spaces import Space
from tabr.errors import ParameterError
from tabr.network.rows import Rows
from tabr.tables.shape import DataShape

NORM_EPSILON = 1e-12
NOISE = 0.1  # share of chosen cells that are not hidden but wrong
# The optimizer.
FLAT = 0.7  # share of steps before the learning rate falls
MAX_GRADIENT = 1.0
BETAS = (0.9, 0.999)
EPSILON = 1e-6
MAX_LENGTH = 10.0
LOOKAHEAD_STEPS, LOOKAHEAD_SHARE = 6, 0.5


@dataclass(frozen=True)
class Config:
    """The shape of the network, and what is hidden in training.

    With a label masking of 1 no label is ever seen.
    """

    n_layers: int = 8
    width: int = 64
    n_heads: int = 8
    dropout: float = 0.1
    masking: float = 0.15
    label_masking: float = 1.0
    n_steps: int = 2000

    def __post_init__(self) -> None:
        """Check the width."""
        if self.width % self.n_heads:
            raise ParameterError(
                "width must be a multiple of n_heads, however:"
                f" width={self.width}, n_heads={self.n_heads}"
            )


class Cells(NamedTuple):
    """Rows of a table with holes.

    Shapes: number (n, p), code (n, r), hole (n, p + r), in this order. What stands in a
    hole is of no importance.
    """

    number: Tensor
    code: Tensor
    hole: Tensor


def with_more_holes(
    cells: Cells, chance: Tensor, noise: Tensor, n_levels: Tensor
) -> tuple[Cells, Tensor]:
    """Return the table with more holes, and the cells that were chosen (n, t).

    The chances are by column (t,). A chosen cell is hidden or, by the chance `noise`,
    replaced: by a normal number, or by any level of the n_levels (r,) of its column.
    """
    draws = torch.rand(2, *cells.hole.shape, device=cells.hole.device)
    chosen = (draws[0] < chance) & ~cells.hole
    wrong = draws[1] < noise
    n_numbers = cells.number.shape[1]
    replaced = chosen & wrong
    noisy = torch.randn_like(cells.number)
    number = torch.where(replaced[:, :n_numbers], noisy, cells.number)
    levels = torch.rand(cells.code.shape, device=cells.code.device) * n_levels
    code = torch.where(replaced[:, n_numbers:], levels.long(), cells.code)
    return Cells(number, code, cells.hole | (chosen & ~wrong)), chosen


def cell_losses(numbers: Tensor, levels: Tensor, truth: Cells) -> Tensor:
    """Return squares of errors, then minus log-probabilities: a loss a cell (n, t)."""
    squares = (numbers - truth.number).square()
    if truth.code.shape[1] == 0:
        return squares
    log_probability = levels.gather(2, truth.code.clamp_min(0)[..., None]).squeeze(2)
    return torch.cat([squares, -log_probability], 1)


# --- the network ----------------------------------------------------------------------


class Block(nn.Module):
    """Attention between rows (n, width), or columns (n, t, width), and a layer."""

    def __init__(self, width: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=NORM_EPSILON)
        self.attention = Attention(width, n_heads, dropout=dropout, scale=width**-0.5)
        self.shortcut = nn.Linear(width, width)
        self.layers = nn.Sequential(
            nn.LayerNorm(width, eps=NORM_EPSILON),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(4 * width, width),
            nn.Dropout(dropout),
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, n_context: int | None) -> Tensor:
        """Return x after attention between rows; without a context, between columns."""
        attended = self.attention(self.norm(x), x, n_context)
        x = self.shortcut(x) + self.dropout(attended)
        out: Tensor = x + self.layers(x)
        return out


class Tokens(nn.Module):
    """Cells (n) -> tokens (n, t, width), numbers first."""

    def __init__(
        self, n_numbers: int, cardinalities: tuple[int, ...], width: int
    ) -> None:
        """Draw as torch does for a linear layer of each column, and normal vectors."""
        super().__init__()
        n_codes = len(cardinalities)
        self.shape = n_numbers, n_codes
        self.number = nn.Parameter(torch.empty(n_numbers, 2, width))  # and the hole
        self.level = CategoryVectors(cardinalities, width)
        self.no_level = nn.Parameter(torch.empty(n_codes, width))
        self.bias = nn.Parameter(torch.empty(n_numbers + n_codes, width))
        self.place = nn.Parameter(torch.empty(n_numbers + n_codes, width))
        has_kinds = n_numbers > 0 and n_codes > 0  # else they would tell nothing
        self.kind = nn.Parameter(torch.empty(2 if has_kinds else 0, width))
        counts = torch.tensor(cardinalities, dtype=torch.int64)
        bounds = (counts + 1.0) ** -0.5  # a hole is one level more
        nn.init.uniform_(self.number, -(2**-0.5), 2**-0.5)
        for parameter, bound in (
            (self.level.weight, bounds.repeat_interleave(counts)),
            (self.no_level, bounds),
            (self.bias, torch.cat([torch.full((n_numbers,), 2**-0.5), bounds])),
        ):
            nn.init.uniform_(parameter, -1.0, 1.0)
            parameter.data *= bound[:, None]
        nn.init.normal_(self.place)
        nn.init.normal_(self.kind)

    def forward(self, cells: Cells) -> Tensor:
        """Return a token for each cell."""
        hole, no_level = cells.hole[..., None].split([*self.shape], 1)
        filled = cells.number[..., None].masked_fill(hole, 0)
        numbers = filled * self.number[:, 0] + hole * self.number[:, 1]
        levels = self.level(cells.code.masked_fill(no_level[..., 0], -1))
        levels = levels + no_level * self.no_level
        tokens = torch.cat([numbers, levels], 1) + self.bias + self.place
        if len(self.kind) == 0:
            return tokens
        kinds = zip(self.kind, self.shape, strict=True)
        return tokens + torch.cat([kind.expand(n, -1) for kind, n in kinds])


class Answers(nn.Module):
    """Tokens (n, t, width) -> numbers (n, p) and log-probabilities (n, r, levels).

    Columns with fewer levels than others have some that are impossible.
    """

    place: Tensor
    impossible: Tensor

    def __init__(
        self, n_numbers: int, cardinalities: tuple[int, ...], width: int
    ) -> None:
        """Draw as torch does for a linear layer of each column."""
        super().__init__()
        n_levels = sum(cardinalities)
        self.number = nn.Parameter(torch.empty(n_numbers, width))
        self.number_bias = nn.Parameter(torch.empty(n_numbers))
        self.level = nn.Parameter(torch.empty(n_levels, width))
        self.level_bias = nn.Parameter(torch.empty(n_levels))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(width**-0.5), width**-0.5)
        counts = torch.tensor(cardinalities, dtype=torch.int64)
        most = max(cardinalities, default=0)
        impossible = torch.arange(most) >= counts[:, None]  # (r, most)
        place = (~impossible).flatten().nonzero().squeeze(1)
        self.register_buffer("place", place, persistent=False)
        self.register_buffer("impossible", impossible, persistent=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the answers of all columns."""
        n_numbers = len(self.number)
        numbers = (x[:, :n_numbers] * self.number).sum(-1) + self.number_bias
        shape = self.impossible.shape
        if shape[0] == 0:
            return numbers, x.new_empty(len(x), 0, 0)
        weight = self.level.new_zeros(shape.numel(), x.shape[-1])
        weight = weight.index_copy(0, self.place, self.level).view(*shape, -1)
        bias = self.level_bias.new_full((shape.numel(),), -torch.inf)
        bias = bias.index_copy(0, self.place, self.level_bias).view(*shape)
        logits = (x[:, n_numbers:].transpose(0, 1) @ weight.mT).transpose(0, 1)
        return numbers, (logits + bias).log_softmax(-1)


class Network(nn.Module):
    """Cells of rows, the last of which are the context -> answers of all rows.

    It begins with attention between rows, whose width is that of all tokens.
    """

    def __init__(
        self, n_numbers: int, cardinalities: tuple[int, ...], config: Config
    ) -> None:
        super().__init__()
        width = config.width
        d_row = (n_numbers + len(cardinalities)) * width
        self.tokens = Tokens(n_numbers, cardinalities, width)
        self.blocks = nn.ModuleList(
            Block(width if number % 2 else d_row, config.n_heads, config.dropout)
            for number in range(config.n_layers)
        )
        self.answers = Answers(n_numbers, cardinalities, width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, cells: Cells, n_context: int) -> tuple[Tensor, Tensor]:
        """Return numbers (n, p) and log-probabilities (n, r, levels)."""
        x = self.dropout(self.tokens(cells))
        shape = x.shape
        for number, block in enumerate(self.blocks):
            if number % 2:
                x = block(x.view(shape), None)
            else:
                x = block(x.flatten(1), n_context)
        out: tuple[Tensor, Tensor] = self.answers(self.dropout(x.view(shape)))
        return out


# --- the optimizer --------------------------------------------------------------------


class LookaheadLamb:
    """LAMB (You et al., 2020) with Lookahead (Zhang et al., 2019).

    LAMB is Adam whose step of each tensor has a length in proportion to that of the
    tensor. As in the code that NPT uses, averages are not corrected for their beginning
    at zero, and a tensor's length counts as 10 at most. Lookahead goes back half of the
    way every sixth step; its slow weights begin as those after the first six. No step
    waits for the device; steps are counted outside of it.
    """

    def __init__(
        self, parameters: Iterable[Tensor], learning_rate: float, n_steps: float
    ) -> None:
        self.learning_rate, self.n_steps, self.n_done = learning_rate, n_steps, 0
        self.parameters = [p for p in parameters if p.numel() > 0]
        self.first = [torch.zeros_like(p) for p in self.parameters]
        self.second = [torch.zeros_like(p) for p in self.parameters]
        self.slow: list[Tensor] = []

    @property
    def share(self) -> float:
        """The share of the steps that are done."""
        return self.n_done / self.n_steps

    @torch.no_grad()
    def step(self) -> None:
        """Apply the gradients, whose numbers are cut, at the rate of this step."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        assert len(gradients) == len(self.parameters)
        gradients = list(torch._foreach_clamp_max(gradients, MAX_GRADIENT))
        torch._foreach_clamp_min_(gradients, -MAX_GRADIENT)
        torch._foreach_lerp_(self.first, gradients, 1 - BETAS[0])
        torch._foreach_mul_(self.second, BETAS[1])
        torch._foreach_addcmul_(self.second, gradients, gradients, 1 - BETAS[1])
        spread = torch._foreach_sqrt(self.second)
        torch._foreach_add_(spread, EPSILON)
        steps = torch._foreach_div(self.first, spread)
        length = torch.stack(torch._foreach_norm(self.parameters)).clamp_max(MAX_LENGTH)
        step_length = torch.stack(torch._foreach_norm(steps))
        is_positive = (length > 0) & (step_length > 0)
        ratio = torch.where(is_positive, length / step_length, 1.0)
        torch._foreach_mul_(steps, ratio.unbind())
        rate = self.learning_rate * learning_rate_at(self.share)
        torch._foreach_add_(self.parameters, steps, alpha=-rate)
        self.n_done += 1
        if self.n_done % LOOKAHEAD_STEPS == 0:
            self._look_ahead()

    def _look_ahead(self) -> None:
        if not self.slow:
            self.slow = [p.clone() for p in self.parameters]
            return
        torch._foreach_lerp_(self.slow, self.parameters, LOOKAHEAD_SHARE)
        torch._foreach_copy_(self.parameters, self.slow)


def learning_rate_at(share: float) -> float:
    """Return the learning rate after a share of the steps, in units of the first."""
    if share < FLAT:
        return 1.0
    return (1 + math.cos(math.pi * (share - FLAT) / (1 - FLAT))) / 2


def weight_of_cells_at(share: float) -> float:
    """Return the weight of hidden cells against hidden labels, from 1 to 0."""
    return (1 + math.cos(math.pi * share)) / 2


# --- the method -----------------------------------------------------------------------


class NPT(NeuralMethod):
    """NPT-Base."""

    config_type = Config
    has_batches = False  # the paper gave it batches of its own
    needs_no_tuning = True
    captures = False  # rates change from step to step, on the host
    training_defaults = replace(NeuralMethod.training_defaults, batch_size=4096)
    search_space: ClassVar[Space] = {"learning_rate": 0.001}  # nothing is tuned

    context: Cells
    lamb: LookaheadLamb

    def build(self, schema: DataShape) -> nn.Module:
        """Draw the context of predictions and return the network."""
        n_numbers, cardinalities = schema.n_num + schema.n_bin, schema.cardinalities
        if self.task == "regression":
            n_numbers += 1
        else:
            cardinalities = (*cardinalities, schema.n_classes)
        n_columns = n_numbers + len(cardinalities)
        self.label = (n_numbers if self.task == "regression" else n_columns) - 1
        masking = self.config.label_masking
        chance = torch.full((n_columns,), self.config.masking)
        noise = torch.full((n_columns,), NOISE)
        chance[self.label] = masking
        if masking == 1:  # there is nothing to doubt
            noise[self.label] = 0.0
        n_levels = torch.tensor(cardinalities, dtype=torch.float32)
        self.chances = [part.to(self.device) for part in (chance, noise, n_levels)]
        n_context = self.training.batch_size  # or all rows, if they are fewer
        index = torch.randperm(self.rows.n_rows)[:n_context].to(self.device)
        labels = self.labels[index] if masking < 1 else None
        self.context = self._cells(self.rows.take(index), labels)
        # Batches of one size, and an epoch more rather than less.
        n_train = self.rows.n_rows
        n_batches = math.ceil(n_train / self.training.batch_size)
        n_epochs = math.ceil(self.config.n_steps / n_batches)
        self.n_steps = n_epochs * n_batches
        self.training = replace(
            self.training,
            batch_size=math.ceil(n_train / n_batches),
            max_epochs=n_epochs,
            patience=n_epochs,
        )
        return Network(n_numbers, cardinalities, self.config)

    def optimizer(self) -> LookaheadLamb:
        """Return LAMB with Lookahead, at a rate that falls in the end."""
        rate, parameters = self.training.learning_rate, self.network.parameters()
        self.lamb = LookaheadLamb(parameters, rate, self.n_steps)
        return self.lamb

    def _cells(self, rows: Rows, labels: Tensor | None) -> Cells:
        """Return the rows as cells, with holes for labels that are None."""
        number, code = torch.cat([rows.num, rows.bin], 1), rows.cat
        is_hidden = labels is None
        if labels is None:
            labels = torch.zeros_like(self.labels[:1]).expand(rows.n_rows)
        if self.task == "regression":
            number = torch.cat([number, labels[:, None]], 1)
        else:
            code = torch.cat([code, labels[:, None]], 1)
        hole = torch.cat([torch.zeros_like(number, dtype=torch.bool), code < 0], 1)
        if is_hidden:
            hole[:, self.label] = True
        return Cells(number, code, hole)

    def loss(self, index: Tensor) -> Tensor:
        """Return the loss of the training rows at index (b,), at this time."""
        return self.table_loss(index, weight_of_cells_at(self.lamb.share))

    def table_loss(self, index: Tensor, weight_of_cells: float) -> Tensor:
        """Return the mean loss of hidden labels and, as they weigh, of hidden cells."""
        truth = self._cells(self.rows.take(index), self.labels[index])
        cells, chosen = with_more_holes(truth, *self.chances)
        number, levels = self.network(cells, len(index))
        losses = cell_losses(number, levels, truth) * chosen
        total, count = losses.sum(0), chosen.sum(0)  # (t,)
        of_label = total[self.label] / count[self.label].clamp_min(1)
        others = torch.ones_like(total)
        others[self.label] = 0.0
        of_cells = (total * others).sum() / (count * others).sum().clamp_min(1)
        return weight_of_cells * of_cells + (1 - weight_of_cells) * of_label

    def outputs(self, rows: Rows) -> Tensor:
        """Return the outputs (n, n_outputs) for rows, in the same context for all."""
        pairs = zip(self._cells(rows, None), self.context, strict=True)
        cells = Cells(*(torch.cat(parts) for parts in pairs))
        number, levels = self.network(cells, len(self.context.number))
        if self.task == "regression":
            value: Tensor = number[: rows.n_rows, -1:]
            return value
        return self.outputs_of(levels[: rows.n_rows, -1, : self.target.n_classes])
