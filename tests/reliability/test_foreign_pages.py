import pytest

pytest.importorskip("uvicorn", reason="pip install 'tabr[serve]'")

from reliability.foreign_pages import trial
from reliability.services import SETTINGS


@pytest.mark.parametrize("setting", SETTINGS)
def test_foreign_pages_read_and_change_nothing(browser, setting, tmp_path):
    found = trial(browser.browser_type, setting, tmp_path)
    assert found.held, found
    assert sum(v for k, v in found.counts.items() if k.startswith("attempts")) > 500
    if setting == "--no-token":  # the same attempts succeed where they may
        assert found.counts["answers that a page of the service itself read"] > 20
        assert found.counts["changes that it made"] == 5
