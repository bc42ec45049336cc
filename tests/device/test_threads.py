"""Work split over threads."""

from __future__ import annotations

import pytest
import torch

from tabr.device.threads import one_thread, split_work, whole_pieces


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("n", [0, 1, 3, 17])
def test_every_piece_is_worked_on_once_and_in_order(n_threads: int, n: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        parts = split_work(list, n)
        assert [i for part in parts for i in part] == list(range(n))
        assert torch.get_num_threads() == n_threads
    finally:
        torch.set_num_threads(before)


def test_an_error_in_a_thread_reaches_the_caller() -> None:
    def fail(numbers: range) -> None:
        raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        split_work(fail, 4)


@pytest.mark.parametrize("when", [True, False])
def test_one_thread_is_lent_and_given_back(when: bool) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(KeyError), one_thread(when):
            assert torch.get_num_threads() == (1 if when else 2)
            raise KeyError
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_whole_pieces_keep_their_threads_while_torch_has_one(n_threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        for _ in range(2):
            with pytest.raises(KeyError), whole_pieces(True):
                assert torch.get_num_threads() == 1
                assert len(split_work(list, 12)) == n_threads
                with whole_pieces(True):  # inside another
                    assert len(split_work(list, 12)) == n_threads
                raise KeyError
            assert torch.get_num_threads() == n_threads
        with whole_pieces(False):
            assert torch.get_num_threads() == n_threads
    finally:
        torch.set_num_threads(before)
