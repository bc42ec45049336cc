"""Arrays that grow at the cost of what is added."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np

Array = TypeVar("Array")

_SPARE = 1.5  # room taken, when there is none, for each that is needed


class GrowableArray(Generic[Array]):
    """An array of numpy or torch that grows along one axis.

    `extended` returns a longer one and writes into spare room behind this one, which
    never changes: whoever reads it meanwhile sees what was there before.

    >>> short = GrowableArray(np.array([1, 2]))
    >>> long = short.extended(np.array([3]))
    >>> print(short.view, long.view)
    [1 2] [1 2 3]
    """

    def __init__(self, array: Array, axis: int = 0) -> None:
        """Begin with an array, which is not copied."""
        whole: Any = array
        self._buffer = whole
        self.axis = axis
        self.n = int(self._buffer.shape[axis])
        self._used = [self.n]  # of the buffer, by whomever

    @property
    def view(self) -> Array:
        """The array as it is."""
        return self._part(0, self.n)  # type: ignore[no-any-return]

    def _part(self, start: int, stop: int) -> Any:
        return self._buffer[(slice(None),) * self.axis + (slice(start, stop),)]

    def extended(self, new: Array) -> GrowableArray[Array]:
        """Return it with more behind it."""
        more: Any = new
        n_new = self.n + more.shape[self.axis]
        result: GrowableArray[Array] = GrowableArray.__new__(GrowableArray)
        result.axis, result.n = self.axis, n_new
        fits = n_new <= self._buffer.shape[self.axis] and self._used[0] == self.n
        if fits and self._buffer.dtype == more.dtype:
            result._buffer, result._used = self._buffer, self._used
        else:
            result._buffer = self._with_room(round(_SPARE * n_new), new)
            result._used = [self.n]
        result._part(self.n, n_new)[...] = new
        result._used[0] = n_new
        return result

    def _with_room(self, n: int, new: Any) -> Any:
        """Copy into a larger buffer that can hold the new ones, too."""
        shape = list(self._buffer.shape)
        shape[self.axis] = n
        if isinstance(new, np.ndarray):
            dtype = np.result_type(self._buffer.dtype, new.dtype)
            buffer: Any = np.empty(shape, dtype=dtype)
        else:
            buffer = self._buffer.new_empty(shape)
        place = (slice(None),) * self.axis + (slice(0, self.n),)
        buffer[place] = self.view
        return buffer
