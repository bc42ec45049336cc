"""Tables with fixed splits: those of the paper's benchmarks, and a user's own."""
