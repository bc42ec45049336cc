"""The durable record of changes: SQLite in a file, or PostgreSQL by address.

In: changes of a model's candidates, with the clients' keys, and model files that
replace old changes. Out: the same, in order, whatever happens to the process.
"""
