"""Paired, interleaved timing of a candidate against a baseline on one GPU, and what may be said of it.

Contract
- `schedule` drives two `Side`s lap by lap in one plan fixed in advance; never has more than one of them work on the GPU.
- `arms` are the sides: a candidate in the worker that owns the GPU, a baseline in the referee's process, which has torch.
- `statistics` turns the blocks into a speedup with an interval and a verdict; it is pure and knows no GPU.
- `clocks` and `roof` say in which state the GPU was, and what no honest kernel beats.
"""
