"""Settings of the whole suite."""

import os

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
