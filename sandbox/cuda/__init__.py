"""A real GPU as a device: worker processes that speak to the driver, and the parent's side that judges by them.

Contract
- `device.CudaDevice` is the `sandbox.device.Device`; it keeps one worker process (`service`, run by `sandbox.worker`) a GPU.
- The worker imports neither NumPy nor torch nor pydantic: it is ready in well under a second. What crosses the pipe stands in `wire`.
- A worker in which a kernel faulted or hung is killed with its process group, and never used again.
"""
