"""What a fitted model answers, and how its candidates change."""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from tabr.candidates.rules import Rule, check_rule
from tabr.errors import LabelWarning
from tabr.prediction.explanation import Explanation, NeighborTable
from tabr.prediction.uncertainty import MOST_ROWS, Calibration, Signals, calibrate
from tabr.tables.csv import ColumnType
from tabr.tables.frame import to_frame
from tabr.tables.preprocessor import EncodedRows, Preprocessor
from tabr.tables.targets import Target

if TYPE_CHECKING:
    from tabr.candidates.candidate_set import CandidateSet
    from tabr.prediction.members import MemberOutput, Reading
    from tabr.training.fit import Member
    from tabr.training.memory_plan import MemoryPlan

_updating = Lock()  # one change at a time; predictions need not wait


def _renew_lock() -> None:
    """Give a forked process a free lock: who held it did not come along.

    A change is one assignment at its end, so none is half made.
    """
    global _updating
    _updating = Lock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_renew_lock)


class FittedModel:
    """Predictions, neighbours and explanations, and changes of the candidates."""

    candidates_: CandidateSet
    members_: list[Member]
    preprocessor_: Preprocessor
    target_: Target
    calibration_: Calibration
    temperature_: float
    memory_plan_: MemoryPlan | None
    context_size_: int

    @property
    @abstractmethod
    def is_bounded(self) -> bool:
        """Whether no number beyond the labels of the candidates is predicted."""

    # --- what it knows of tables ----------------------------------------------

    def column_types(self) -> dict[str, ColumnType]:
        """Return how the columns of a CSV are read: as those of fit were."""
        check_is_fitted(self, "members_")
        kinds, levels = self.preprocessor_.kinds_, self.preprocessor_.known_texts
        candidates = self.candidates_
        rule = None if candidates.rule is None else candidates.rule.rule
        needed = {*kinds, *(() if rule is None else rule.columns)}
        return {
            str(name): ColumnType.of(
                column,
                kind=kinds.get(str(name)),
                levels=levels.get(str(name)),
                needed=name in needed,
            )
            for name, column in candidates.frame.items()
        }

    def target_type(self) -> ColumnType:
        """Return how labels of a CSV are read: as those of fit were."""
        check_is_fitted(self, "members_")
        classes = self.target_.classes
        if classes is None:
            return ColumnType.of(pd.Series([0.0], name="target"))
        labels = pd.Series(classes, name="target")
        return ColumnType.of(labels, levels=[str(label) for label in classes])

    # --- a row's way to a prediction --------------------------------------------

    def _encode(self, X: Any) -> EncodedRows:
        """Return any table's rows with the columns of fit, and as arrays."""
        check_is_fitted(self, "members_")
        return self.preprocessor_.encode(to_frame(X), caller=type(self).__name__)

    def _ask(
        self, encoded: EncodedRows, effects: bool = False
    ) -> tuple[CandidateSet, list[MemberOutput]]:
        """Return the candidates, and what each member says of the rows.

        The candidates are read once: who changes them meanwhile changes no prediction.
        """
        from tabr.prediction.members import ask_members

        candidates = self.candidates_
        plan = getattr(self, "memory_plan_", None)  # a loaded model has none
        outputs = ask_members(
            [member.network for member in self.members_],
            candidates,
            encoded,
            self.context_size_,
            weights=[member.weight for member in self.members_],
            rows_at_a_time=None if plan is None else plan.rows_at_a_time,
            effects=effects,
        )
        return candidates, outputs

    def _predictions(self, X: Any) -> NDArray[np.float64]:
        """Return values (rows,) or probabilities (rows, classes)."""
        from tabr.prediction.members import mean_prediction

        candidates, outputs = self._ask(self._encode(X))
        return mean_prediction(outputs, self._reading(candidates))

    def _reading(self, candidates: CandidateSet) -> Reading:
        """Return how outputs become predictions beside these candidates."""
        from tabr.prediction.members import Reading

        is_number = self.target_.classes is None
        limits = candidates.limits if self.is_bounded and is_number else None
        return Reading(self.target_, self.temperature_, limits)

    def neighbors(self, X: Any) -> NeighborTable:
        """Return the candidates that the predictions for X come from.

        The result has `ids`, `weights` and `distances`, each (rows, m), heaviest
        first. Ids of training rows are positions in the table of `fit`;
        `candidates_.look_up(ids)` gives the rows. An ensemble's weights are the mean of
        its members'.
        """
        from tabr.prediction.members import neighbor_table

        candidates, outputs = self._ask(self._encode(X))
        return neighbor_table(outputs, candidates)

    def explain(self, X: Any) -> Explanation:
        """Return where the predictions for X come from, neighbour by neighbour.

        Beside what `neighbors` tells, it has each neighbour's label, its effect (the
        prediction minus that without it), for numbers the correction of its label, the
        prediction without any neighbour, and what each member says.
        """
        from tabr.prediction.members import explain

        encoded = self._encode(X)
        candidates, outputs = self._ask(encoded, effects=True)
        names = [member.recipe for member in self.members_]
        return explain(encoded, candidates, outputs, self._reading(candidates), names)

    # --- how sure it is -------------------------------------------------------

    def signals(self, X: Any) -> Signals:
        """Return predictions, neighbours and their labels, of one search."""
        return self._signals(self._encode(X))

    def _signals(self, encoded: EncodedRows) -> Signals:
        from tabr.prediction.members import mean_prediction, neighbor_table

        candidates, outputs = self._ask(encoded)
        table = neighbor_table(outputs, candidates)
        predictions = mean_prediction(outputs, self._reading(candidates))
        return Signals(predictions, table, candidates.y_of(table.ids))

    def calibrate(self, X: Any, y: Any) -> Self:
        """Learn from labelled rows how wrong predictions are.

        `fit` has done it with the rows it stopped early by, which flatters slightly;
        rows that nothing has seen do not.
        """
        encoded, caller = self._encode(X), type(self).__name__
        labels = self.target_.read(y, n_rows=len(encoded), caller=caller)
        self._calibrate(encoded, labels)
        return self

    def _calibrate(self, encoded: EncodedRows, y: NDArray[Any]) -> None:
        if len(encoded) > MOST_ROWS:
            chosen = np.random.RandomState(0).permutation(len(encoded))[:MOST_ROWS]
            encoded, y = encoded.take(chosen), y[chosen]
        self.calibration_ = calibrate(self._signals(encoded), y, self.target_)

    def typicality(self, X: Any) -> NDArray[np.float64]:
        """Return for each row the share of held-out rows that are at least as far.

        Far from their nearest candidates, that is. Below 0.01, say, a row is unlike all
        that the model remembers, and its prediction is a guess.
        """
        return self.calibration_.typicality(self.neighbors(X))

    # --- changes of the candidates --------------------------------------------

    def add_candidates(self, X: Any, y: Any) -> NDArray[np.int64]:
        """Add labelled rows to the candidates; nothing is trained again.

        Predictions use them from now on. A row that cannot be used changes nothing.

        Args:
            X: Rows with the columns of `fit`, those of a rule included.
            y: Their labels (n,); classes must be those of `fit`.

        Returns:
            Ids (n,) of the new candidates, which stay theirs.
        """
        encoded, caller = self._encode(X), type(self).__name__
        labels = self.target_.read(y, n_rows=len(encoded), caller=caller)
        codes = self.target_.encode(labels)
        self._warn_of(labels)
        labels = self.target_.as_fitted(labels, codes)
        with _updating:
            self.candidates_, ids = self.candidates_.added(encoded, labels, codes)
        return ids

    def remove_candidates(self, ids: Any) -> None:
        """Remove candidates for good; their ids are not given again."""
        check_is_fitted(self, "members_")
        with _updating:
            self.candidates_ = self.candidates_.removed(ids)

    def relabel_candidates(self, ids: Any, y: Any) -> None:
        """Replace the labels of candidates by y (k,), in the order of the ids."""
        check_is_fitted(self, "members_")
        caller = type(self).__name__
        labels = self.target_.read(y, n_rows=np.size(ids), caller=caller)
        codes = self.target_.encode(labels)
        self._warn_of(labels)
        labels = self.target_.as_fitted(labels, codes)
        with _updating:
            self.candidates_ = self.candidates_.relabelled(ids, labels, codes)

    def label_doubt(self, y: Any) -> str | None:
        """Return a sentence if labels lie far beyond those of fit, else None.

        `add_candidates` and `relabel_candidates` warn with it. Far is more than
        thrice the range of the labels of fit beyond it.
        """
        check_is_fitted(self, "members_")
        return self.target_.doubt(self.target_.read(y, caller=type(self).__name__))

    def _warn_of(self, labels: NDArray[Any]) -> None:
        """Warn of labels that are unlike those of fit; called by what users call."""
        doubt = self.target_.doubt(labels)
        if doubt is not None:
            warnings.warn(doubt, LabelWarning, stacklevel=3)

    def restrict_candidates(self, rule: Rule | None) -> None:
        """Change who may be retrieved, without training again; None allows all."""
        from tabr.candidates.device_rules import warn_of_lonely

        check_is_fitted(self, "members_")
        check_rule(rule)
        with _updating:
            restricted = self.candidates_.restricted(rule)
            if restricted.rule is not None:
                warn_of_lonely(restricted.rule, restricted.frame, stacklevel=2)
            self.candidates_, self.candidates = restricted, rule

    # --- what is left behind --------------------------------------------------

    @property
    def history_(self) -> pd.DataFrame:
        """What happened in training: a line for each member and epoch."""
        from tabr.training.members import history_table

        check_is_fitted(self, "members_")
        return history_table(self.members_)

    @property
    def best_epoch_(self) -> list[int]:
        """The epoch (from 0) whose weights each member kept."""
        check_is_fitted(self, "members_")
        return [member.history.best_epoch for member in self.members_]
