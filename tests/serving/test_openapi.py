"""What the OpenAPI description promises, tried with made-up requests of all sorts."""

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from starlette.testclient import TestClient

from tabr.serving.access.tokens import Tokens
from tabr.serving.app import create_app
from tabr.serving.served_model import ServedModel
from tabr.serving.service import Compacting

from .conftest import OWN

schemathesis = pytest.importorskip("schemathesis", reason="pip install 'tabr[test]'")

TOKEN = "t" * 20


def described(served: ServedModel, tokens: Tokens | None = None):
    """The description of an app that runs."""
    app = create_app(served, tokens, compacting=Compacting(at_end=False))
    return app, schemathesis.openapi.from_dict(app.openapi())


@pytest.mark.filterwarnings("ignore")  # of clients about odd requests
@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
@pytest.mark.parametrize("with_token", [True, False])
def test_no_request_makes_it_fail(served: ServedModel, with_token: bool, mode):
    tokens = None if with_token else Tokens(TOKEN)
    app, schema = described(served, tokens)
    before = served.version
    statuses: set[int] = set()
    with TestClient(app, OWN, raise_server_exceptions=False) as client:
        for result in schema.get_all_operations():
            operation = result.ok()

            @settings(
                max_examples=15,
                deadline=None,
                database=None,
                derandomize=True,
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def ask(case) -> None:
                kwargs = case.as_transport_kwargs(base_url=OWN)
                answer = client.request(**kwargs)
                statuses.add(answer.status_code)
                assert answer.status_code < 500, answer.text
                assert "Traceback" not in answer.text
                if not with_token:
                    assert answer.status_code == 401

            with suppress(Unsatisfiable):  # nothing in it can be wrong
                ask()
    if not with_token:
        assert served.version == before and statuses == {401}
