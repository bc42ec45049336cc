"""Methods compared by the paper's protocol, on its tables or on a user's.

In come tasks (`tasks`), names of methods (`methods`) and hardware (`workers`). Out come
a small file for each run (`results`), the standings of methods (`ranks`) and the best
parameters of searches (`searches`). `benchmark.run_benchmark` and `tuning.tune` do the
work; the command line is `tabr bench` and `tabr tune`.
"""
