"""One thread of torch's a test process: several test processes share few cores, and threads that wait for each other spin there."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
