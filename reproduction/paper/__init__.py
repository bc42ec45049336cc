"""The paper's tables and figures, ours beside the published.

In: a results folder. Out: pages, pictures and files of figures (`pages.write`).
"""
