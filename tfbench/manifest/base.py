"""What every table of a manifest shares: strictness, and types with their bounds."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from tfbench.manifest.limits import MAX_SAFE_INT


class Table(BaseModel):
    """A frozen table: unknown keys are errors, nothing is coerced but whole floats to whole numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def refusal(text: str, *at: str | int) -> PydanticCustomError:
    """The error a validator raises: `text` says what is wrong and the mend; `at` are the keys below the table."""
    return PydanticCustomError("refusal", "{text}", {"text": text, "at": at})


def one_line(text: str) -> str:
    """`text` with everything that could break a line or a terminal escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


def _whole(value: Any) -> Any:
    # JSON and TOML writers print 5 as 5.0; both must mean (and hash as) the same.
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole), Field(ge=-MAX_SAFE_INT, le=MAX_SAFE_INT)]
Count = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=MAX_SAFE_INT)]
NonNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
