"""docs/verdict.schema.json, made from the document's own classes: `python -m tfbench.report.verdict_schema > …`."""

import sys
from typing import Any

from tfbench.core.jsonio import dump_text
from tfbench.verdict.gate_document import GateResult


def verdict_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of verdict.json."""
    from pydantic import TypeAdapter

    schema = TypeAdapter(GateResult).json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "tfbench verdict"} | schema


if __name__ == "__main__":
    sys.stdout.write(dump_text(verdict_schema(), indent=True) + "\n")
