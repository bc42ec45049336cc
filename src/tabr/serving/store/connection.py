"""Connections to a database, and transactions on them that are kept whole."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tabr.errors import TabrError

# What to do about a store that is damaged.
MEND = (
    "keep its files, and restore a backup (`tabr restore`), or begin anew with"
    " --new-store, which sets the files aside"
)


class StoreError(TabrError, RuntimeError):
    """The store failed; nothing was changed, and it may be tried again."""


class OutcomeUnknown(StoreError):
    """The change may or may not be kept; sending it again with its key is safe."""


class StoreDamaged(StoreError):
    """The store does not hold what it must; trying again does not help."""


class Forgotten(StoreError):
    """The model file is one from before some of its rows were forgotten.

    Attributes:
        successor: The identity of the file that took its place.
    """

    def __init__(self, place: str, successor: str) -> None:
        self.successor = successor
        super().__init__(
            f"{place} has forgotten rows of this model file, however the file is still"
            " the one from before: run `tabr forget` on it again, with the same ids, or"
            " give the file that took its place"
        )


class NoStore(StoreError):
    """No store of this model was begun at the address."""


class Connection(ABC):
    """A connection to a database; its failures are StoreErrors."""

    bytes_type: str  # as the database calls it
    is_shared: bool  # whether models share the database
    wait_seconds = 30.0  # for other writers
    place: str  # of the database, for messages
    driver_error: type[Exception]
    database: Any  # as the driver has it

    def outlive(self, lost: Any) -> None:
        """End what a lost connection may still do; in a file that is nothing."""
        return

    @property
    def is_lost(self) -> bool:
        """Whether the server has ended the connection; a file never does."""
        return bool(getattr(self.database, "closed", False))

    @abstractmethod
    def begin(self, writes: bool) -> None:
        """Begin a transaction that sees one state, or excludes writers of the model."""

    @abstractmethod
    def has_tables(self) -> bool:
        """Whether the tables exist; no one else makes them during the transaction."""

    @abstractmethod
    def is_undone(self, error: BaseException | None) -> bool:
        """Whether nothing is left of a commit that failed with this error."""

    @abstractmethod
    def _execute(self, sql: str, values: tuple[Any, ...]) -> Any:
        """Run a statement; return the driver's cursor."""

    def execute(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement with %s for values; return its rows."""
        with self.errors():
            cursor = self._execute(sql, values)
            return cursor.fetchall() if cursor.description else []

    def commit(self) -> None:
        """End the transaction durably.

        Raises:
            OutcomeUnknown: It may or may not have worked.
        """
        try:
            self.execute("COMMIT")
        except StoreError as error:
            cause = error.__context__
            if self.is_undone(cause):
                raise
            raise OutcomeUnknown(
                f"changes are kept in {self.place}, however whether it has kept this"
                f" one was not clear ({self.reason(cause)})"
            ) from None

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn the driver's errors into StoreErrors, without what it may reveal."""
        try:
            yield
        except (self.driver_error, UnicodeError) as error:
            if isinstance(error, UnicodeError) or self.is_damage(error):
                raise StoreDamaged(
                    f"changes are kept in {self.place}, however it is damaged"
                    f" ({self.reason(error)}): {MEND}"
                ) from None
            raise StoreError(
                f"changes are kept in {self.place}, however it cannot be used"
                f" ({self.reason(error)}): nothing was changed, try again when it can"
            ) from None

    def is_damage(self, error: Exception) -> bool:
        """Whether an error tells that the database itself is damaged."""
        return False

    def check(self) -> None:
        """Refuse a database that is damaged, as far as it can tell."""
        return

    def claim(self) -> None:
        """Keep others out until the end; refuse if some are in, where that is known."""
        return

    def overwrite(self) -> None:
        """Leave nothing of what was deleted, as far as a client can see to that."""
        return

    def keep_log(self) -> None:
        """Copy what closing the database would tidy away; it may yet be of use."""
        return

    def reason(self, error: object) -> str:
        """Return a driver's message as part of a sentence."""
        return " ".join(str(error).split())

    def close(self) -> None:
        """End the connection, without what it has not committed."""
        with contextlib.suppress(self.driver_error):
            self.database.close()


class Session:
    """Transactions on one connection, for one thread after another.

    The connection is made when it is needed, and again after it was lost.
    """

    def __init__(self, connect: Callable[[], Connection], writes: bool) -> None:
        self._connect, self._writes = connect, writes
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._lost: Connection | None = None  # the one before
        self._is_closed = False

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Commit the whole block or, if it raises, nothing of it."""
        with self._lock:
            connection = self._begun()
            try:
                yield connection
                connection.commit()
            except BaseException:
                self._undo(connection)
                raise

    @contextmanager
    def outside(self) -> Iterator[Connection]:
        """The connection without a transaction, for what none can hold."""
        with self._lock:
            self._connection = self._connection or self._connect()
            yield self._connection

    def _begun(self) -> Connection:
        if self._is_closed:
            raise StoreError("a store must be open, however this one was closed")
        is_old = self._connection is not None
        connection = self._connection = self._connection or self._connect()
        try:
            if self._lost is not None:
                connection.outlive(self._lost)
                self._lost = None
            connection.begin(self._writes)
        except BaseException as error:
            was_lost = connection.is_lost
            self._undo(connection)
            if is_old and was_lost and isinstance(error, StoreError):
                return self._begun()  # a new one is tried once
            raise
        return connection

    def _undo(self, connection: Connection) -> None:
        try:
            connection.execute("ROLLBACK")
        except StoreError:  # the end of the connection undoes it, too
            self._connection, self._lost = None, connection
            connection.close()

    def close(self) -> None:
        """End the connection for good."""
        with self._lock:
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()
            self._connection = None
