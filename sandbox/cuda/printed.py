"""What kernels print: the process's stdout is an unlinked file, read up to a limit and cut after every run. Never read as a result."""

from __future__ import annotations

import os
import tempfile


class Printed:
    """Takes the place of stdout for as long as the process lives."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        os.dup2(self._file.fileno(), 1)

    def take(self, most: int) -> tuple[bytes, int]:
        """What was printed since the last cut, up to `most` bytes, and how many bytes more there were."""
        size = os.fstat(self._file.fileno()).st_size
        data = os.pread(self._file.fileno(), min(size, most), 0)
        self.cut()
        return data, size - len(data)

    def cut(self) -> None:
        """Forget what was printed."""
        os.ftruncate(self._file.fileno(), 0)
        os.lseek(self._file.fileno(), 0, os.SEEK_SET)
