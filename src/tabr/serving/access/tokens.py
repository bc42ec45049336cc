"""Who may ask: named tokens with rights and an end, and the file that keeps them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, get_args

from tabr.errors import DataError
from tabr.tables.files import draft_of

logger = logging.getLogger("tabr.serving")

Rights = Literal["read", "write"]  # who may write may read
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
REREAD_SECONDS = 1.0  # between looks at the file of tokens
FORMAT = 1
TOKEN, READ_TOKEN = "token", "read-token"  # names of those that are in no file


@dataclass(frozen=True)
class Token:
    """A token as the service knows it: by its hash alone.

    Attributes:
        name: Whose it is, for the log and the record of changes.
        rights: What one may do with it.
        sha256: The hash of what clients send. A token is long and random, so nobody
            can find it by trying: a plain hash keeps it as safe as a slow one would,
            which is for passwords, and costs nothing at each request.
        expires: When it ends, as ISO 8601 in UTC; None is never.
    """

    name: str
    rights: Rights
    sha256: str = field(repr=False)
    expires: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether its end has come."""
        if self.expires is None:
            return False
        return datetime.fromisoformat(self.expires) <= datetime.now(UTC)


def hash_of(secret: str) -> str:
    """Return the hash by which a token is known."""
    return hashlib.sha256(secret.encode()).hexdigest()


def new_secret() -> str:
    """Return a token that nobody can guess; its start tells what it is."""
    return f"tabr_{secrets.token_urlsafe(32)}"


@dataclass(frozen=True)
class Tokens:
    """All tokens of a service; without any, all clients may write.

    Attributes:
        write: The token called `TOKEN`, which may write.
        read: The token called `READ_TOKEN`, which may read.
        file: More tokens, each with a name.
    """

    write: str | None = field(default=None, repr=False)
    read: str | None = field(default=None, repr=False)
    file: TokenFile | None = None

    @property
    def needed(self) -> bool:
        """Whether a client must send a token."""
        return bool(self.write or self.read or self.file)

    def find(self, header: str | None) -> Token | None:
        """Return the token that an Authorization header carries, if there is one.

        Hashes are compared, so the time of the search tells nothing of a token.
        """
        scheme, _, secret = (header or "").partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            return None
        sha256 = hash_of(secret.strip())
        return next((token for token in self._all() if token.sha256 == sha256), None)

    def _all(self) -> Iterator[Token]:
        if self.write:
            yield Token(TOKEN, "write", hash_of(self.write))
        if self.read:
            yield Token(READ_TOKEN, "read", hash_of(self.read))
        if self.file is not None:
            yield from self.file.tokens()


class TokenFile:
    """The tokens of a file, which are read again when it changes.

    A file that cannot be read any more leaves the tokens as they were: a mistake in it
    locks nobody out, and lets nobody in. Each still ends when it ends.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen = _signature(path)
        self._tokens = read_file(path)
        self._looked = time.monotonic()

    def tokens(self) -> tuple[Token, ...]:
        """Return the tokens as the file has them, or had them up to a second ago."""
        now = time.monotonic()
        if now - self._looked >= REREAD_SECONDS:
            self._looked = now
            self._look()
        return self._tokens

    def _look(self) -> None:
        signature = _signature(self.path)
        if signature == self._seen:
            return
        self._seen = signature
        try:
            self._tokens = read_file(self.path)
        except (DataError, OSError) as error:
            logger.warning("the tokens stay as they were: %s", error)
        else:
            logger.warning("%d tokens were read from %s", len(self._tokens), self.path)


def _signature(path: Path) -> tuple[int, ...] | None:
    """Return what changes with a file; None if it cannot be seen."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode


def read_file(path: Path) -> tuple[Token, ...]:
    """Return the tokens of a file.

    Others may read it, as the files of secrets that containers get: it holds hashes
    alone. But who may write to it could make a token.
    """
    if os.name == "posix" and path.stat().st_mode & 0o022:
        raise DataError(
            f"only its owner may be able to write to a file of tokens, however others"
            f" can write to {path}: chmod 600 mends it"
        )
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']!r:.20}")
        tokens = tuple(_token(entry) for entry in content["tokens"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise DataError(
            f"a file of tokens must be as `tabr token` writes it, however {path} is not"
            f" ({reason:.100})"
        ) from None
    names = [token.name for token in tokens]
    if len(names) > len(set(names)):
        raise DataError(
            f"each token must have a name of its own, however in {path} not"
        )
    return tokens


def _token(entry: Mapping[str, Any]) -> Token:
    token = Token(
        **{key: entry[key] for key in ("name", "rights", "sha256", "expires")}
    )
    if not NAME.fullmatch(token.name) or token.rights not in get_args(Rights):
        raise ValueError(f"a token called {token.name!r:.40}")
    if not re.fullmatch("[0-9a-f]{64}", token.sha256):
        raise ValueError(f"the hash of {token.name}")
    if (
        token.expires is not None
        and datetime.fromisoformat(token.expires).tzinfo is None
    ):
        raise ValueError(f"the end of {token.name} without a time zone")
    return token


def add(path: Path, name: str, rights: Rights, days: int) -> str:
    """Put a new token into a file, which is made if need be; return the token."""
    if not NAME.fullmatch(name) or name in (TOKEN, READ_TOKEN):
        raise DataError(
            "the name of a token must have 1 to 64 letters, digits or any of ._@-, and"
            f" must not be {TOKEN} or {READ_TOKEN}, however: {name!r:.80}"
        )
    with _alone(path):
        tokens = read_file(path) if path.exists() else ()
        if any(token.name == name for token in tokens):
            raise DataError(
                f"each token must have a name of its own, however {path} has {name!r}:"
                " revoke it first, or choose another name"
            )
        end = datetime.now(UTC) + timedelta(days=days)
        secret = new_secret()
        expires = end.isoformat(timespec="seconds")
        _write(path, (*tokens, Token(name, rights, hash_of(secret), expires)))
    return secret


def revoke(path: Path, name: str) -> None:
    """Take a token out of a file."""
    with _alone(path):
        tokens = read_file(path)
        kept = tuple(token for token in tokens if token.name != name)
        if len(kept) == len(tokens):
            names = ", ".join(token.name for token in tokens) or "none"
            raise DataError(
                f"a token of {path} must be named, however {name!r:.80} is none of"
                f" them: {names:.400}"
            )
        _write(path, kept)


def _write(path: Path, tokens: tuple[Token, ...]) -> None:
    content = {"format": FORMAT, "tokens": [asdict(token) for token in tokens]}
    path.parent.mkdir(parents=True, exist_ok=True)
    with draft_of(path, is_private=True) as draft:
        draft.write_text(json.dumps(content, indent=1) + "\n", "utf-8")


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Let one process after the other change a file, so that no change is lost."""
    try:
        import fcntl
    except ModuleNotFoundError:  # not on Windows
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
