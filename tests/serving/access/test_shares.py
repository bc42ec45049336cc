import asyncio

import pytest
from starlette.exceptions import HTTPException

from tabr.serving.access.shares import SMALL, ShareLimits, Shares
from tests.serving.test_service import finished

BIG = 2 * SMALL


def limits(**more):
    bodies = {"body_bytes": 3 * BIG, "body_bytes_of_client": 2 * BIG}
    return ShareLimits(**{**bodies, "seconds": 0.05, **more})


async def hold(shares, client, n_bytes, end, held):
    async with shares.body(client, n_bytes):
        held.append(client)
        await end.wait()


def test_bodies_in_memory_are_bounded_and_wait_for_one_another():
    async def run():
        shares, end = Shares(limits(seconds=5.0)), asyncio.Event()
        held, most = [], []

        async def one(client):
            async with shares.body(client, BIG):
                held.append(client)
                most.append(len(held))
                await asyncio.sleep(0.001)
                held.remove(client)

        await asyncio.gather(*(one(f"client {k % 5}") for k in range(40)))
        end.set()
        return len(most), max(most)

    assert finished(run()) == (40, 3)


def test_a_greedy_client_waits_for_itself_alone():
    async def run():
        shares, end, held = Shares(limits()), asyncio.Event(), []
        tasks = [
            asyncio.create_task(hold(shares, client, BIG, end, held))
            for client in ("greedy", "greedy", "greedy", "other")
        ]
        with pytest.raises(HTTPException) as caught:
            await tasks[2]
        async with shares.body("greedy", SMALL):  # which takes no room
            pass
        end.set()
        await asyncio.gather(*tasks[:2], tasks[3])
        async with shares.body("greedy", 99 * BIG):  # alone, it always fits
            pass
        return caught.value.status_code, held

    assert finished(run()) == (503, ["greedy", "greedy", "other"])


def test_what_ends_badly_gives_its_share_back():
    async def run():
        shares = Shares(limits(requests=2, requests_of_client=1))
        for _ in range(5):
            with pytest.raises(ZeroDivisionError), shares.request("a"):
                async with shares.body("a", 9 * BIG):
                    raise ZeroDivisionError
        waiting = asyncio.create_task(hold(shares, "b", BIG, asyncio.Event(), []))
        async with shares.body("a", 3 * BIG):
            await asyncio.sleep(0.01)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        statuses = []
        with shares.request("a"), shares.request("b"):
            for client in ("a", "c"):
                with pytest.raises(HTTPException) as caught, shares.request(client):
                    pass
                statuses.append(caught.value.status_code)
        return statuses, dict(shares._requests), dict(shares._bytes)

    assert finished(run()) == ([429, 503], {}, {})
