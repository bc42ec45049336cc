"""Rows become points, and rows with given neighbours become predictions.

In: `Rows` and the points and labels of their neighbours. Out: predictions, weights and
similarities. Who the neighbours are is the business of other rooms.
"""
