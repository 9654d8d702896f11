"""The base of every record that crosses an edge: a file, a process, a command line."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Frozen, strict about its fields; the docstring under a field is its description. NaN and infinities survive JSON as strings."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, ser_json_inf_nan="strings"
    )
