"""Loops that numba compiles, where it is installed.

Numba is imported by the first who needs it, compiles at the first call and keeps what
it made on disk. Its own threads are not used: they abort the process when two threads
of it meet in them. A loop takes a range, and `split_work` runs it in ours.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

# Sums may be reordered, so that they are taken side by side. What is not a number
# stays so: a loss that is none has to be seen.
_FAST = {"reassoc", "contract", "nsz"}


@functools.cache
def has_numba() -> bool:
    """Whether loops can be compiled; the first call imports numba."""
    try:
        import numba
    except ImportError:  # missing, or not made for the numpy that is there
        return False
    disabled: bool = getattr(numba.config, "DISABLE_JIT", False)
    return not disabled


def compiled(function: Callable[..., Any]) -> Any:
    """Return a function compiled by numba, which lets other threads run meanwhile."""
    return _compiled(function, _FAST)


def exactly_compiled(function: Callable[..., Any]) -> Any:
    """Return it compiled, with each sum in the order that is written."""
    return _compiled(function, set())


def _compiled(function: Callable[..., Any], fast: set[str]) -> Any:
    import numba

    def compile_it(cache: bool) -> Any:
        return numba.njit(nogil=True, cache=cache, error_model="numpy", fastmath=fast)(
            function
        )

    try:
        return compile_it(cache=True)
    except RuntimeError:  # no folder that it could be kept in
        return compile_it(cache=False)
