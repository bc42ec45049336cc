"""Where and how work is done: devices, threads, CUDA graphs, random numbers.

In: the name of a device, a function, a seed. Out: the same results, sooner. Nothing in
this room knows of tables or of TabR.
"""
