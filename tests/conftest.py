"""Settings of the whole suite."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from .databases import postgres as postgres

try:
    from hypothesis import settings
except ModuleNotFoundError:  # a GPU machine may have pytest alone
    pass
else:
    # Examples take as long as a busy machine needs. On CI they are the same each time:
    # a failure there is the change's own.
    settings.register_profile(
        "tabr", deadline=None, max_examples=50, derandomize="CI" in os.environ
    )
    settings.load_profile("tabr")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        pytest.skip("no playwright: pip install playwright")
    names = ("chromium", "chromium-browser", "google-chrome")
    place = next((path for name in names if (path := shutil.which(name))), None)
    if place is None:
        pytest.skip("no browser: apt-get install -y chromium")
    with sync_playwright() as playwright:
        # A container has no user to protect from the page.
        found = playwright.chromium.launch(executable_path=place, args=["--no-sandbox"])
        yield found
        found.close()
