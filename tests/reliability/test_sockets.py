from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("uvicorn", reason="pip install 'tabr[serve]'")

from reliability.services import new_model, running
from reliability.sockets import attack, attacks


def test_attacks_are_counted_and_hold_nobody_up(tmp_path):
    path, _ = new_model(tmp_path)
    # Tests of the page leave a loop in the main thread.
    with running(path, "--no-token") as service, ThreadPoolExecutor(1) as thread:
        kinds = attacks(service, share=0.1)
        assert len(kinds) == 7
        for title, n, send in kinds[:1] + kinds[3:4]:
            found = thread.submit(attack, service, title, n, send, 1.0).result()
            assert found.held, found
            ends = [v for k, v in found.counts.items() if k.startswith("connections")]
            assert sum(ends) == n
