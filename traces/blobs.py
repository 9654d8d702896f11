"""Content-addressed files: `blobs/<sha256>`, written once, whole, and verified whenever read.

The hash is that of the bytes on the disk, which are redacted; so what a reader gets is what was used.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tasks.errors import InputError
from traces.disk import write_whole
from traces.redact import redact


class BlobStore:
    """The blobs of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, data: bytes) -> str:
        """Keep `data`; returns its sha256. Cheap when it is there already."""
        data = redact(data)
        digest = hashlib.sha256(data).hexdigest()
        path = self.folder / digest
        if not path.exists():
            write_whole(path, data)
        return digest

    def put_text(self, text: str) -> str:
        """Keep a text as UTF-8."""
        return self.put(text.encode("utf-8", "surrogatepass"))

    def put_json(self, value: Any) -> str:
        """Keep a JSON value; keys stay in the order they came."""
        return self.put(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))

    def get(self, digest: str) -> bytes:
        """The bytes; raises InputError when they are missing or not those that were kept."""
        path = self.folder / digest
        try:
            data = path.read_bytes()
        except OSError as error:
            raise InputError(f"blob {digest} cannot be read from {self.folder}: {error.strerror}") from None
        found = hashlib.sha256(data).hexdigest()
        if found != digest:
            raise InputError(f"{path} is damaged: expected sha256 {digest}, found {found}")
        return data

    def text(self, digest: str) -> str:
        """The text kept by `put_text`."""
        return self.get(digest).decode("utf-8", "surrogatepass")

    def json(self, digest: str) -> Any:
        """The value kept by `put_json`."""
        return json.loads(self.text(digest))
