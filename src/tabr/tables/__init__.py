"""Any table becomes arrays, and predictions become the user's labels again.

In: a pandas, polars or pyarrow table, an array, a list of rows, or a file; a target.
Out: `Arrays` of numbers, flags and codes; labels; and the way back.
"""
