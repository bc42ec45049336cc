"""Who may ask the service, under which name, and how much at a time.

In: tokens, names and limits, connections and requests. Out: rights and refusals.
"""
