"""JSON bodies of requests: measured first, then read and checked row by row.

Counting what a body holds is cheap, reading it is not. And whatever reads or checks
JSON lets no other thread run before it is done: so it gets one row at a time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, NamedTuple

import numpy as np
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from tabr.errors import DataError
from tabr.serving.messages import StrictMessage

MOST_DEPTH = 16  # of lists and objects in each other
MOST_PROBLEMS = 100  # that are named
_MOST_UNKNOWN = 10  # columns of a row that are named
_SMALL = 16 << 10  # bytes that are read at once, without a thread

_PART = 1 << 20  # bytes that are measured together
_QUOTE, _COMMA = b'",'
_STEPS = np.zeros(256, np.int8)  # by which a sign leads deeper
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1
_SPACE = re.compile(r"[ \t\n\r]*")

Problems = list[dict[str, Any]]
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


# --- measured -------------------------------------------------------------------


class Size(NamedTuple):
    """How many values a body may hold at most, and how deep they lie."""

    n_values: int
    depth: int


def measure(content: bytes) -> Size:
    """Return the size of JSON, as far as it is JSON.

    >>> measure(b'{"a": [1, "[[,,"]}')
    Size(n_values=4, depth=2)
    """
    if b"\\" in content:  # an escaped quote ends no text
        content = content.replace(b"\\\\", b"  ").replace(b'\\"', b"  ")
    signs = np.frombuffer(content, np.uint8)
    n_values, depth, deepest, in_text = 1, 0, 0, np.False_
    for start in range(0, len(signs), _PART):
        part = signs[start : start + _PART]
        is_text = np.bitwise_xor.accumulate(part == _QUOTE) ^ in_text
        in_text = is_text[-1]
        part = part[~is_text]
        depths = np.cumsum(_STEPS[part], dtype=np.int64) + depth
        if len(depths):
            depth, deepest = int(depths[-1]), max(deepest, int(depths.max()))
        n_values += int(np.count_nonzero((part == _COMMA) | (_STEPS[part] > 0)))
    return Size(n_values, deepest)


def check(content: bytes, most_values: int) -> None:
    """Refuse a body that is costly to read."""
    size = measure(content)
    if size.n_values > most_values:
        raise DataError(
            f"a request may have at most {most_values} values, however"
            f" {size.n_values} came: send fewer rows"
        )
    if size.depth > MOST_DEPTH:
        raise DataError(
            f"lists and objects may lie {MOST_DEPTH} deep, however they lie"
            f" {size.depth} deep: send plain cells"
        )


# --- read -----------------------------------------------------------------------


class _Json:
    """JSON text, read value by value from its beginning."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        decoder: Any = json.JSONDecoder(object_pairs_hook=_once)
        self._scan = decoder.scan_once

    def next_sign(self) -> str:
        """Return the sign that comes next, after spaces; "" at the end."""
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._text[self._at : self._at + 1]

    def take(self, sign: str) -> None:
        """Pass a sign that must come next."""
        if self.next_sign() != sign:
            raise json.JSONDecodeError(f"Expecting {sign!r}", self._text, self._at)
        self._at += len(sign) or 1

    def value(self) -> Any:
        """Read a value."""
        self.next_sign()
        try:
            value, self._at = self._scan(self._text, self._at)
        except StopIteration as stop:
            what = "Expecting value"
            raise json.JSONDecodeError(what, self._text, stop.value) from None
        return value

    def name(self) -> str:
        """Read the name of a value in an object."""
        if self.next_sign() != '"':
            self.take('"')
        return str(self.value())

    def items(self, begin: str, end: str) -> Iterator[None]:
        """Stop at each item of a list or an object, for the caller to read it."""
        self.take(begin)
        if self.next_sign() != end:
            yield
            while self.next_sign() == ",":
                self.take(",")
                yield
        self.take(end)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object, none of whose names is repeated."""
    found = dict(pairs)
    if len(found) < len(pairs):
        last = {name: k for k, (name, _) in enumerate(pairs)}
        twice = next(name for k, (name, _) in enumerate(pairs) if last[name] > k)
        raise DataError(
            f"each name may come once in an object, however {twice[:40]!r} came more"
            " than once: drop one of them"
        )
    return found


def read(content: bytes, message: type[StrictMessage]) -> StrictMessage:
    """Return a body as a message; its rows are dicts of their columns' names."""
    check(content, message.most_values)
    rows: list[dict[str, Any]] = []
    problems: Problems = []
    try:
        text = content.decode("utf-8-sig")
        fields = _fields(_Json(text), message, rows, problems)
    except UnicodeDecodeError:
        raise DataError("JSON must be UTF-8, however it is not: encode it so") from None
    except json.JSONDecodeError as error:
        problem = {"type": "json_invalid", "loc": ("body", error.pos)}
        raise RequestValidationError(
            [{**problem, "msg": "JSON decode error"}]
        ) from None
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            "a number must have fewer digits, however one has thousands: shorten it"
        ) from None
    try:
        done = message.model_validate(fields)
    except ValidationError as error:
        problems[:0] = _problems(error, "body")
    if problems:
        raise RequestValidationError(problems[:MOST_PROBLEMS])
    if "rows" in message.model_fields:
        done.rows = rows  # type: ignore[attr-defined]
    return done


def _fields(
    text: _Json, message: type[StrictMessage], rows: list[Any], problems: Problems
) -> Any:
    """Return the fields of a message, and put its rows and what is wrong in lists.

    Where rows belong, the fields have as many blank ones.
    """
    if text.next_sign() != "{":
        fields = text.value()
    else:
        pairs: list[tuple[str, Any]] = []
        for _ in text.items("{", "}"):
            name = text.name()
            text.take(":")
            if name == "rows" and message.row is not None and text.next_sign() == "[":
                _read_rows(text, message.row, rows, problems)
                pairs.append((name, [message.row.model_construct()] * len(rows)))
            else:
                pairs.append((name, text.value()))
        fields = _once(pairs)
    text.take("")
    return fields


def _read_rows(
    text: _Json, row: type[BaseModel], rows: list[Any], problems: Problems
) -> None:
    """Read and check rows one by one; with many mistakes, no more is checked."""
    names = {field.alias for field in row.model_fields.values()}
    for _ in text.items("[", "]"):
        cells = text.value()
        checked = row.model_construct()
        if len(problems) < MOST_PROBLEMS:
            try:
                checked = row.model_validate(_few_unknown(cells, names))
            except ValidationError as error:
                problems += _problems(error, "body", "rows", len(rows))
        rows.append({} if problems else checked.model_dump(by_alias=True))


def _few_unknown(cells: Any, names: set[str | None]) -> Any:
    """Return cells without most of those that have no column: each costs a message."""
    if not isinstance(cells, dict) or cells.keys() <= names:
        return cells
    left_out = set([name for name in cells if name not in names][_MOST_UNKNOWN:])
    return {name: cell for name, cell in cells.items() if name not in left_out}


def _problems(error: ValidationError, *place: str | int) -> Problems:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [{**problem, "loc": (*place, *problem["loc"])} for problem in found]


# --- of requests ----------------------------------------------------------------


def check_plain(request: Request) -> None:
    """Refuse a body that is packed."""
    packing = request.headers.get("content-encoding", "identity").strip().lower()
    if packing not in ("identity", ""):
        raise HTTPException(
            415,
            f"a body must come as it is, however its content-encoding is"
            f" {packing!r:.40}: send it unpacked",
        )


class _ReadRequest(Request):
    """A request whose message has been read."""

    message: StrictMessage

    async def json(self) -> Any:
        """Return the message, which FastAPI takes as it is."""
        return self.message


def route_class(in_thread: Callable[..., Awaitable[StrictMessage]]) -> type[APIRoute]:
    """Return routes that read the messages of their requests themselves.

    FastAPI describes the messages all the same. Long bodies are read `in_thread`.
    """

    class Route(APIRoute):
        def get_route_handler(self) -> Handler:
            """Return what answers a request."""
            handle = super().get_route_handler()
            message = _message_of(self.endpoint)
            if message is None:
                return handle

            async def read_and_handle(request: Request) -> Response:
                own = _ReadRequest(request.scope, request.receive)
                content = await own.body()
                if content:  # else FastAPI says that it is absent
                    _check_json(request)
                    if len(content) <= _SMALL:
                        own.message = read(content, message)
                    else:
                        own.message = await in_thread(read, content, message)
                return await handle(own)

            return read_and_handle

    return Route


def _message_of(endpoint: Callable[..., Any]) -> type[StrictMessage] | None:
    """Return the message that a route takes, if it takes one."""
    kinds = [v for k, v in endpoint.__annotations__.items() if k != "return"]
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, StrictMessage):
            return kind
    return None


def _check_json(request: Request) -> None:
    check_plain(request)
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    kind, _, subtype = media.partition("/")
    if kind != "application" or not (subtype == "json" or subtype.endswith("+json")):
        raise HTTPException(
            415, f"a body must come as application/json, however: {media!r:.80}"
        )
