"""Where predictions come from: neighbours, their weights, effects and labels."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tabr.optional import require
from tabr.text import aligned

Floats = NDArray[np.float64]

_SHOWN = 5  # neighbours of a row in a notebook
_SHOWN_ROWS = 3


class NeighborTable(NamedTuple):
    """The neighbours of n rows, largest weight first; all arrays are (n, m).

    Where a row had fewer neighbours its ids end in -1, with weight zero and an
    infinite distance.

    Attributes:
        ids: Ids of candidates.
        weights: Weights of attention; each row's sum is at most one.
        distances: Distances under the learned metric.
    """

    ids: NDArray[np.int64]
    weights: NDArray[np.float64]
    distances: NDArray[np.float64]


class MemberTable(NamedTuple):
    """What each of k members says of n rows.

    Attributes:
        recipes: The names of their recipes, k.
        weights: How much each counts (k,); they sum to one.
        predictions: What each predicts, (n, k).
    """

    recipes: tuple[str, ...]
    weights: Floats
    predictions: Floats

    def to_frame(self) -> pd.DataFrame:
        """Return a line for each row and member."""
        n, k = self.predictions.shape
        return pd.DataFrame(
            {
                "row": np.repeat(np.arange(n), k),
                "member": np.tile(np.arange(k), n),
                "recipe": list(self.recipes) * n,
                "weight": np.tile(self.weights, n),
                "prediction": self.predictions.ravel(),
            }
        )

    def of_row(self, row: int) -> list[dict[str, Any]]:
        """Return recipe, weight and prediction of each member for a row."""
        values = self.weights.tolist(), self.predictions[row].tolist()
        return [
            {"recipe": recipe, "weight": weight, "prediction": prediction}
            for recipe, weight, prediction in zip(self.recipes, *values, strict=True)
        ]


@dataclass(frozen=True, repr=False)
class Explanation:
    """Where the predictions for n rows come from.

    A prediction is a number, or the probability of the class that was predicted.

    Attributes:
        rows: The rows that were asked about, (n, columns).
        answers: What was predicted (n,): numbers or classes.
        predictions: The same as numbers: values, or probabilities of these classes.
        alone: Predictions (n,) without any neighbour.
        usual: What one would predict knowing nothing: the candidates' mean, or the
            share of the class, (n,).
        table: Ids, weights and distances of neighbours, (n, m).
        labels: Their labels, (n, m).
        effects: Predictions minus those without each neighbour, (n, m).
        corrections: What the model adds to each neighbour's label to make it the
            row's, in units of the target, (n, m); None for classes.
        neighbors: All neighbours in the user's columns, indexed by id.
        probabilities: Those of all classes, (n, classes); None for numbers.
        members: What each member says; their weighted mean is `predictions`.
    """

    rows: pd.DataFrame
    answers: NDArray[Any]
    predictions: Floats
    alone: Floats
    usual: Floats
    table: NeighborTable
    labels: NDArray[Any]
    effects: Floats
    corrections: Floats | None
    neighbors: pd.DataFrame
    probabilities: Floats | None
    members: MemberTable

    def __len__(self) -> int:
        """Return the number of rows that are explained."""
        return len(self.rows)

    @property
    def from_retrieval(self) -> Floats:
        """What all neighbours together did to the predictions, (n,)."""
        return self.predictions - self.alone

    @property
    def share(self) -> Floats:
        """The share (n,) of a prediction that came from retrieval, 0 to 1.

        A prediction is what is usual, what the row alone tells beyond that, and what
        its neighbours tell; the share compares the sizes of the last two.
        """
        retrieved = np.abs(self.from_retrieval)
        from_row = np.abs(self.alone - self.usual)
        whole = np.maximum(retrieved + from_row, np.finfo(np.float64).tiny)
        share: Floats = retrieved / whole
        return share

    def to_frame(
        self, top: int | None = None, differences: bool = False
    ) -> pd.DataFrame:
        """Return a line for each row and neighbour, heaviest first.

        The neighbour's own columns come last; a name that is taken gets "neighbor." in
        front.

        Args:
            top: Neighbours of each row; None is all.
            differences: Add for each numeric column the neighbour's value minus the
                row's.
        """
        ids = self.table.ids[:, :top]
        row, place = np.nonzero(ids >= 0)
        columns: dict[str, Any] = {
            "row": row,
            "neighbor": ids[row, place],
            "weight": self.table.weights[row, place],
            "effect": self.effects[row, place],
            "distance": self.table.distances[row, place],
            "label": self.labels[row, place],
        }
        if self.corrections is not None:
            columns["correction"] = self.corrections[row, place]
        frame = pd.DataFrame(columns)
        neighbors = self.neighbors.loc[ids[row, place]].reset_index(drop=True)
        taken = {
            name: f"neighbor.{name}" for name in neighbors.columns if name in columns
        }
        frame = pd.concat([frame, neighbors.rename(columns=taken)], axis=1)
        if differences:
            frame = pd.concat([frame, self._differences(neighbors, row)], axis=1)
        return frame

    def _differences(
        self, neighbors: pd.DataFrame, row: NDArray[np.int64]
    ) -> pd.DataFrame:
        columns = {}
        for name in neighbors.columns:
            of_row = self.rows.get(name)
            if of_row is None or not (
                _is_number(neighbors[name]) and _is_number(of_row)
            ):
                continue
            value = of_row.to_numpy(np.float64, na_value=np.nan)[row]
            of_neighbor = neighbors[name].to_numpy(np.float64, na_value=np.nan)
            columns[f"{name} - row's"] = of_neighbor - value
        return pd.DataFrame(columns, index=neighbors.index)

    def plot(self, row: int = 0, top: int = 12) -> Any:
        """Draw a row's heaviest neighbours: weights, effects and labels.

        Returns a matplotlib figure.
        """
        pyplot: Any = require("matplotlib.pyplot", "plots")
        ids = self.table.ids[row]
        shown = np.flatnonzero(ids >= 0)[:top]
        figure, (left, right) = pyplot.subplots(
            1, 2, sharey=True, figsize=(9, 1.4 + 0.28 * max(len(shown), 1))
        )
        where = np.arange(len(shown))
        names = [f"{ids[k]}: {_short(self.labels[row, k])}" for k in shown]
        left.barh(where, self.table.weights[row, shown], color="#4C72B0")
        effects = self.effects[row, shown]
        colors = np.where(effects >= 0, "#55A868", "#C44E52")
        right.barh(where, effects, color=colors)
        right.axvline(0, color="0.3", linewidth=0.8)
        left.set_yticks(where, names)
        left.invert_yaxis()
        left.set_xlabel("weight")
        left.set_ylabel("neighbour: its label")
        right.set_xlabel("effect on the prediction")
        title = f"row {row}: {_short(self.answers[row])}"
        title += f", without neighbours {_short(self.alone[row])}"
        figure.suptitle(title, fontsize=11)
        for axis in (left, right):
            axis.spines[["top", "right"]].set_visible(False)
        figure.tight_layout()
        return figure

    def _blocks(self) -> Iterator[tuple[str, list[list[str]]]]:
        """Yield a title and the cells of a table for each of the first rows."""
        for row in range(min(_SHOWN_ROWS, len(self))):
            parts = [
                f"row {row}: {_short(self.answers[row])}",
                f"without neighbours {_short(self.alone[row])}",
                f"{self.share[row]:.0%} from retrieval",
                member_words(self.members.predictions[row].tolist(), _short),
            ]
            title = ", ".join(filter(None, parts))
            lines = [["neighbor", "weight", "effect", "label"]]
            for k in np.flatnonzero(self.table.ids[row] >= 0)[:_SHOWN]:
                id, label = self.table.ids[row, k], self.labels[row, k]
                weight, effect = self.table.weights[row, k], self.effects[row, k]
                lines.append(
                    [str(id), f"{weight:.1%}", f"{effect:+.3g}", _short(label)]
                )
                if self.corrections is not None:
                    lines[-1].append(_short(label + self.corrections[row, k]))
            if self.corrections is not None:
                lines[0].append("corrected")
            yield title, lines

    def __repr__(self) -> str:
        """Write the first rows with their heaviest neighbours."""
        text = []
        for title, lines in self._blocks():
            text += [title, *(f"  {line}" for line in aligned(lines, "r"))]
        if len(self) > _SHOWN_ROWS:
            text.append(f"... {len(self) - _SHOWN_ROWS} more rows; to_frame() has all")
        return "\n".join(text)

    def _repr_html_(self) -> str:
        """Show the same in a notebook."""
        parts = []
        for title, (head, *lines) in self._blocks():
            body = "".join(_html_row(line, "td") for line in lines)
            parts.append(
                f"<p>{html.escape(title)}</p><table><thead>{_html_row(head, 'th')}"
                f"</thead><tbody>{body}</tbody></table>"
            )
        if len(self) > _SHOWN_ROWS:
            parts.append(f"<p>and {len(self) - _SHOWN_ROWS} more rows</p>")
        return "".join(parts)


def member_words(predictions: Sequence[float], write: Callable[[float], str]) -> str:
    """Return from where to where members go; nothing for one alone.

    >>> member_words([3.0, 1.0], str), member_words([3.0], str)
    ('2 members say 1.0 to 3.0', '')
    """
    if len(predictions) < 2:
        return ""
    low, high = write(min(predictions)), write(max(predictions))
    return f"{len(predictions)} members say {low} to {high}"


def _html_row(cells: list[str], tag: str) -> str:
    cells = [f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells]
    return f"<tr>{''.join(cells)}</tr>"


def _is_number(column: pd.Series[Any]) -> bool:
    numeric = pd.api.types.is_numeric_dtype(column.dtype)
    return bool(numeric and not pd.api.types.is_bool_dtype(column.dtype))


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)
