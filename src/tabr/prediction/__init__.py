"""What fitted networks say of rows: predictions, neighbours, effects, and how sure.

In: members, candidates, rows. Out: arrays and an `Explanation` in the user's columns.
"""
