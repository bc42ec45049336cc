"""The paper's experiments, run again: `python -m tabr.bench`."""
