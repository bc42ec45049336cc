"""Where and how work is done: devices, threads, CUDA graphs, random numbers.

In: the name of a device, a function, a seed. Out: the same results, sooner. Nothing in
this room knows of tables or of TabR.

* `devices`: which device to use, its name, and whether it runs Triton kernels.
* `threads`: work on a CPU, split over threads.
* `member_axis`: how many networks run as one under `torch.vmap`.
* `random`, `random_triton`: random numbers and dropout, the same stacked and alone.
* `cuda_graphs`: streams for training, and functions captured as CUDA graphs.
"""
