"""Settings of physical models: bounds on fields, and every number finite."""

import math
from dataclasses import dataclass, fields

from engram.core.config import Settings
from engram.core.errors import EngramError


@dataclass(frozen=True, kw_only=True)
class FiniteSettings(Settings):
    """Settings that refuse infinity and NaN in every field."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise EngramError(f"{field.name} must be a finite number, not {value}.")
        super().__post_init__()
