"""Which chunks of recorded streams are output."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfbench.core.kinds import VISIBLE_KINDS, ChunkKind


def output_mask(streams: Any) -> NDArray[np.bool_]:
    """Whether each chunk of a `streams` table is output, row after row; metrics/sql/attempts.sql says the same in SQL.

    What shows something is, and what shows nothing where it is known to have carried a token, or where its whole
    stream shows nothing.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kinds = pc.list_flatten(streams["kind"])
    output: NDArray[np.bool_] = _numpy(
        pc.is_in(kinds, value_set=pa.array(sorted(kind.value for kind in VISIBLE_KINDS)))
    )
    empty = _numpy(pc.equal(kinds, ChunkKind.EMPTY.value))
    if empty.any():
        tokens = _numpy(pc.list_flatten(streams["tokens"]).fill_null(-1))
        output |= empty & (tokens > 0)
        rows = _numpy(pc.list_parent_indices(streams["kind"]))
        silent = np.bincount(rows, weights=output, minlength=len(streams)) == 0
        output |= empty & (tokens < 0) & silent[rows]
    return output


def _numpy(column: Any) -> NDArray[Any]:
    values: NDArray[Any] = column.to_numpy()
    return values
