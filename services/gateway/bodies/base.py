"""What every request body has in common."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Body(BaseModel):
    """A JSON object whose unknown members are refused, so that a misspelling is not silently ignored."""

    model_config = ConfigDict(extra="forbid", ser_json_bytes="utf8")

    def given(self) -> dict[str, Any]:
        """Return the members the caller gave, without nulls."""
        return self.model_dump(exclude_none=True, exclude_unset=True, mode="json")
