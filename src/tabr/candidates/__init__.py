"""Who may be retrieved: rules, searchable points, and the set that comes and goes.

In: rows with labels, a network, a rule. Out: the neighbours of other rows, by position
or by an id that stays.
"""
