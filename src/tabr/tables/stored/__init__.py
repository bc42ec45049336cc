"""The candidates' columns as model files hold them.

In: a frame. Out: plain arrays, what else restores it, and the frame again; Parquet of
earlier versions is read in a process of its own.
"""
