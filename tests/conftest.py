"""Settings of the whole suite."""

try:
    from hypothesis import settings
except ModuleNotFoundError:  # a GPU machine may have pytest alone
    pass
else:
    # Examples take as long as a busy machine needs.
    settings.register_profile("tabr", deadline=None, max_examples=50)
    settings.load_profile("tabr")
