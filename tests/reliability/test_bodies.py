import json

from reliability.bodies import MOST_KEPT, Ledger
from reliability.crafted_bodies import Body

BEFORE = {1: (5.0, {"a": 1}), 2: (6.0, {"a": 2})}


def told(ledger: Ledger, method: str, ids: list[int], rows: list[dict], status=201):
    content = json.dumps({"rows": rows}).encode()
    body = Body("JSON", method, "/v1/candidates", "application/json", content)
    return ledger.note(0, body, status, json.dumps({"ids": ids}).encode())


def test_candidates_that_no_answer_explains_are_counted():
    ledger = Ledger()
    assert ledger.wrong(BEFORE, BEFORE) == 0
    told(ledger, "POST", [3], [{"a": 3}])
    told(ledger, "POST", [4], [{"a": 4}], status=422)
    after = {**BEFORE, 3: (7.0, {"a": 3})}
    assert ledger.wrong(BEFORE, after) == 0
    assert ledger.wrong(BEFORE, BEFORE) == 1  # lost
    assert ledger.wrong(BEFORE, {**after, 4: (7.0, {"a": 4})}) == 1  # added by itself
    assert ledger.wrong(BEFORE, {**BEFORE, 3: (7.0, {"a": 9})}) == 1  # altered
    assert ledger.wrong(BEFORE, {**after, 1: (9.0, {"a": 1})}) == 1
    told(ledger, "PATCH", [1], [], status=200)
    assert ledger.wrong(BEFORE, {**after, 1: (9.0, {"a": 1})}) == 0
    told(ledger, "DELETE", [2], [], status=200)
    assert ledger.wrong(BEFORE, after) == 1


def test_failures_are_named_and_rows_that_cannot_be_listed_go_again():
    ledger = Ledger()
    told(ledger, "POST", [], [], status=500)
    told(ledger, "POST", [], [], status=0)
    assert ledger.statuses == {"5xx": 1, "none": 1} and len(ledger.failures) == 2
    many = list(range(10, 11 + MOST_KEPT))
    assert told(ledger, "POST", many, [{}] * len(many)) == many
    assert ledger.wrong(BEFORE, BEFORE) == 0
