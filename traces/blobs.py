"""Content-addressed files: `blobs/<sha256>`, written once, whole, and verified whenever read from the disk.

The hash is that of the bytes on the disk, which are redacted; so what a reader gets is what was used. Threads may share a store. What
was lately written or verified stays in memory, up to `KEPT` bytes: the next turn asks for it again.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

from tasks.errors import InputError
from traces.disk import sync_folder, write_whole
from traces.redact import redact

KEPT = 16 << 20
"""Bytes kept in memory."""
LARGEST = 1 << 18
"""Bytes; larger blobs are not kept."""


class BlobStore:
    """The blobs of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._settled: set[str] = set()
        self._recent: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def put(self, data: bytes) -> str:
        """Keep `data`; returns its sha256. Cheap when it is there already."""
        data = redact(data)
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self._settled:
            path = self.folder / digest
            if path.exists():  # whoever put it there may have died, or be about to make its name durable
                sync_folder(self.folder)
            else:
                write_whole(path, data)
                self._remember(digest, data)
            self._settled.add(digest)
        return digest

    def put_text(self, text: str) -> str:
        """Keep a text as UTF-8."""
        return self.put(text.encode("utf-8", "surrogatepass"))

    def put_json(self, value: Any) -> str:
        """Keep a JSON value; keys stay in the order they came."""
        return self.put(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))

    def get(self, digest: str) -> bytes:
        """The bytes; raises InputError when they are missing or not those that were kept."""
        with self._lock:
            if digest in self._recent:
                self._recent.move_to_end(digest)
                return self._recent[digest]
        path = self.folder / digest
        try:
            data = path.read_bytes()
        except OSError as error:
            raise InputError(f"blob {digest} cannot be read from {self.folder}: {error.strerror}") from None
        found = hashlib.sha256(data).hexdigest()
        if found != digest:
            raise InputError(f"{path} is damaged: expected sha256 {digest}, found {found}")
        self._remember(digest, data)
        return data

    def text(self, digest: str) -> str:
        """The text kept by `put_text`."""
        return self.get(digest).decode("utf-8", "surrogatepass")

    def json(self, digest: str) -> Any:
        """The value kept by `put_json`."""
        return json.loads(self.text(digest))

    def _remember(self, digest: str, data: bytes) -> None:
        if len(data) > LARGEST:
            return
        with self._lock:
            if digest not in self._recent:
                self._recent[digest] = data
                self._bytes += len(data)
            while self._bytes > KEPT:
                self._bytes -= len(self._recent.popitem(last=False)[1])
