"""What a fitted model answers, and how its memory changes."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from tabr.candidates.rules import Rule, check_rule
from tabr.prediction.explanation import Explanation, NeighborTable
from tabr.prediction.uncertainty import (
    MOST_ROWS,
    Calibration,
    calibrate_classes,
    calibrate_numbers,
)
from tabr.tables.frame import to_frame
from tabr.tables.preprocessor import Preprocessor
from tabr.tables.targets import ClassTarget, NumberTarget

if TYPE_CHECKING:
    from tabr.candidates.candidate_set import CandidateSet
    from tabr.prediction.members import Member, MemberOutput

_updating = Lock()  # one change at a time; predictions need not wait


class FittedModel:
    """Predictions, neighbours and explanations, and changes of the candidates."""

    candidates_: CandidateSet
    members_: list[Member]
    preprocessor_: Preprocessor
    target_: NumberTarget | ClassTarget
    calibration_: Calibration

    def _ask(
        self, X: Any, effects: bool = False
    ) -> tuple[pd.DataFrame, CandidateSet, list[MemberOutput]]:
        """Return the rows of X, the candidates, and what each member says of the rows.

        The candidates are read once: who changes them meanwhile changes no answer.
        """
        from tabr.prediction.members import ask_members

        check_is_fitted(self, "members_")
        name = type(self).__name__
        frame = self.preprocessor_.match(to_frame(X), caller=name)
        candidates = self.candidates_
        plan = getattr(self, "memory_plan_", None)  # a loaded model has none
        answers = ask_members(
            self.members_,
            candidates,
            frame,
            self.preprocessor_.arrays(frame),
            self.context_size,  # type: ignore[attr-defined]
            None if plan is None else plan.rows_at_a_time,
            effects=effects,
        )
        return frame, candidates, answers

    def _decoded(self, X: Any) -> NDArray[np.float64]:
        """Return the mean of the members' predictions: values or probabilities."""
        from tabr.prediction.members import decode

        _, _, answers = self._ask(X)
        predictions = [decode(a.output.prediction, self.target_) for a in answers]
        mean: NDArray[np.float64] = np.mean(predictions, axis=0)
        return mean

    def neighbors(self, X: Any) -> NeighborTable:
        """Return the candidates that the predictions for X come from.

        The result has `ids`, `weights` and `distances`, each (rows, m), heaviest
        first. Ids of training rows are positions in the table of `fit`;
        `candidates_.look_up(ids)` gives the rows. An ensemble's weights are the mean of
        its members'.
        """
        from tabr.prediction.members import neighbor_table

        _, candidates, answers = self._ask(X)
        return neighbor_table(answers, candidates)

    def explain(self, X: Any) -> Explanation:
        """Return where the predictions for X come from, neighbour by neighbour.

        Beside what `neighbors` tells, it has each neighbour's label, its effect (the
        prediction minus that without it), for numbers the correction of its label, and
        the prediction without any neighbour.
        """
        from tabr.prediction.members import explain

        frame, candidates, answers = self._ask(X, effects=True)
        return explain(frame, candidates, answers, self.target_)

    # --- how sure it is -------------------------------------------------------

    def signals(
        self, X: Any
    ) -> tuple[NDArray[np.float64], NeighborTable, NDArray[Any]]:
        """Return predictions, neighbours and their labels (rows, m), of one search.

        Predictions are values (rows,) or probabilities (rows, classes).
        """
        from tabr.prediction.members import decode, neighbor_table

        _, candidates, answers = self._ask(X)
        predictions = [decode(a.output.prediction, self.target_) for a in answers]
        table = neighbor_table(answers, candidates)
        return np.mean(predictions, axis=0), table, candidates.y_of(table.ids)

    def calibrate(self, X: Any, y: Any) -> Self:
        """Learn from labelled rows how wrong predictions are.

        `fit` has done it with the rows it stopped early by, which flatters slightly;
        rows that nothing has seen do not.
        """
        check_is_fitted(self, "members_")
        name = type(self).__name__
        frame = to_frame(X)
        self._calibrate(frame, self.target_.read(y, n_rows=len(frame), caller=name))
        return self

    def _calibrate(self, frame: pd.DataFrame, y: NDArray[Any]) -> None:
        if len(frame) > MOST_ROWS:
            chosen = np.random.RandomState(0).permutation(len(frame))[:MOST_ROWS]
            frame, y = frame.iloc[chosen], y[chosen]
        prediction, table, labels = self.signals(frame)
        if isinstance(self.target_, ClassTarget):
            codes = self.target_.encode(y)
            self.calibration_ = calibrate_classes(codes, prediction, table)
        else:
            self.calibration_ = calibrate_numbers(y, prediction, table, labels)

    def typicality(self, X: Any) -> NDArray[np.float64]:
        """Return for each row the share of held-out rows that are at least as far.

        Far from their nearest candidates, that is. Below 0.01, say, a row is unlike all
        that the model remembers, and its prediction is a guess.
        """
        return self.calibration_.typicality(self.neighbors(X))

    # --- the living memory ----------------------------------------------------

    def add_candidates(self, X: Any, y: Any) -> NDArray[np.int64]:
        """Add labelled rows to the candidates; nothing is trained again.

        Predictions use them from now on. A row that cannot be used changes nothing.

        Args:
            X: Rows with the columns of `fit`, those of a rule included.
            y: Their labels (n,); classes must be those of `fit`.

        Returns:
            Ids (n,) of the new candidates, which stay theirs.
        """
        from tabr.prediction.members import prepare

        check_is_fitted(self, "members_")
        name = type(self).__name__
        frame = self.preprocessor_.match(to_frame(X), caller=name)
        labels = self.target_.read(y, n_rows=len(frame), caller=name)
        rows, codes = prepare(frame, labels, self.preprocessor_, self.target_)
        with _updating:
            candidates, ids = self.candidates_.added(frame, labels, rows, codes)
            self.candidates_ = candidates
        return ids

    def remove_candidates(self, ids: Any) -> None:
        """Remove candidates for good; their ids are not given again."""
        check_is_fitted(self, "members_")
        with _updating:
            self.candidates_ = self.candidates_.removed(ids)

    def relabel_candidates(self, ids: Any, y: Any) -> None:
        """Give candidates other labels y (k,), in the order of the ids."""
        from tabr.prediction.members import encode

        check_is_fitted(self, "members_")
        n = np.size(ids)
        labels = self.target_.read(y, n_rows=n, caller=type(self).__name__)
        codes = encode(labels, self.target_)
        with _updating:
            self.candidates_ = self.candidates_.relabelled(ids, labels, codes)

    def restrict_candidates(self, rule: Rule | None) -> None:
        """Change who may be retrieved, without training again; None allows all."""
        check_is_fitted(self, "members_")
        check_rule(rule)
        with _updating:
            self.candidates_ = self.candidates_.restricted(rule)
            self.candidates = rule

    # --- what is left behind --------------------------------------------------

    @property
    def history_(self) -> pd.DataFrame:
        """What happened in training: a line for each member and epoch."""
        from tabr.prediction.members import history_table

        check_is_fitted(self, "members_")
        return history_table(self.members_)

    @property
    def best_epoch_(self) -> list[int]:
        """The epoch (from 0) whose weights each member kept."""
        check_is_fitted(self, "members_")
        return [member.history.best_epoch for member in self.members_]
