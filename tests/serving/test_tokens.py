import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabr.serving.tokens import Tokens

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
    token = BOTH.find(header)
    assert (token and token.rights) == rights


@given(st.text())
def test_no_other_text_is_a_token(text):
    expected = {"w" * 20: "write", "r" * 20: "read"}.get(text.strip())
    token = BOTH.find(f"Bearer {text}")
    assert (token and token.rights) == expected


def test_empty_tokens_open_nothing_and_none_is_shown():
    assert not Tokens().needed and Tokens().find("Bearer ") is None
    assert Tokens(write="w" * 20).find("Bearer ") is None
    assert Tokens(write="w" * 20, read="").find("Bearer ") is None
    assert "wwww" not in repr(BOTH)
    token = BOTH.find("Bearer " + "w" * 20)
    assert token.sha256 not in repr(token)
