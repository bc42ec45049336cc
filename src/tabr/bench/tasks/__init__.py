"""Tables with fixed splits: those of the paper's two benchmarks, and a user's own.

In come names of the catalogue, or a file and its target column (`selection`). Out come
`Task`s, each one table with one split; `task.load` reads the training, validation and
test rows of one. `openml` downloads tables of the catalogue.
"""
