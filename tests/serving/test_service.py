import asyncio
import gc
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tabr.serving.service import Batcher, warm_up


def finished(work: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of work; tests of the page leave a loop in the main thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def test_what_comes_meanwhile_is_asked_together():
    batches = []
    gate = threading.Event()

    def answer(rows):
        batches.append(list(rows))
        gate.wait(5)
        return [row * 2 for row in rows]

    async def run():
        batcher = Batcher(answer)
        first = asyncio.create_task(batcher.ask([1]))
        while not batches:
            await asyncio.sleep(0.001)
        others = [asyncio.create_task(batcher.ask([k, k])) for k in (2, 3, 4)]
        await asyncio.sleep(0.01)
        gate.set()
        answers = await asyncio.gather(first, *others)
        batcher.close()
        return answers

    assert finished(run()) == [[2], [4, 4], [6, 6], [8, 8]]
    assert batches == [[1], [2, 2, 3, 3, 4, 4]]


def test_batches_are_not_larger_than_allowed():
    sizes = []

    def answer(rows):
        sizes.append(len(rows))
        time.sleep(0.01)
        return list(rows)

    async def run():
        batcher = Batcher(answer, most_rows=4)
        await asyncio.gather(*(batcher.ask([k, k]) for k in range(20)))
        batcher.close()

    finished(run())
    assert max(sizes) <= 4 and sum(sizes) == 40


def test_one_bad_request_does_not_spoil_the_others():
    def answer(rows):
        if "bad" in rows:
            raise ValueError("no")
        time.sleep(0.01)
        return list(rows)

    async def run():
        batcher = Batcher(answer)
        asked = [batcher.ask([name]) for name in ("a", "b", "bad", "c")]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        batcher.close()
        return answers

    a, b, bad, c = finished(run())
    assert (a, b, c) == (["a"], ["b"], ["c"])
    assert isinstance(bad, ValueError)


def test_a_client_that_leaves_holds_nobody_up():
    def answer(rows):
        time.sleep(0.02)
        return list(rows)

    async def run():
        batcher = Batcher(answer)
        gone = asyncio.create_task(batcher.ask([0]))
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        assert await batcher.ask([1]) == [1]
        batcher.close()

    finished(run())


def test_what_was_there_at_the_start_is_no_garbage_to_look_through(served):
    before = served.version
    try:
        warm_up(served)
        assert gc.get_freeze_count() > 10_000
    finally:
        gc.unfreeze()
    assert served.version == before
