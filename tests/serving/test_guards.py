import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabr.serving.guards import Tokens

BOTH = Tokens("w" * 20, "r" * 20)


@pytest.mark.parametrize(
    ("header", "rights"),
    [
        ("Bearer " + "w" * 20, "write"),
        ("bearer " + "r" * 20, "read"),
        ("Basic " + "w" * 20, None),
        ("w" * 20, None),
        ("Bearer", None),
        ("", None),
        (None, None),
    ],
)
def test_a_token_tells_what_one_may_do(header, rights):
    assert BOTH.rights(header) == rights


@given(st.text())
def test_no_other_text_is_a_token(text):
    expected = {"w" * 20: "write", "r" * 20: "read"}.get(text.strip())
    assert BOTH.rights(f"Bearer {text}") == expected


def test_without_tokens_everybody_may_write_and_empty_ones_open_nothing():
    assert Tokens().rights(None) == "write"
    assert Tokens(write="w" * 20).rights("Bearer ") is None
    assert "wwww" not in repr(BOTH)
