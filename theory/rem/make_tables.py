"""Computes overlaps.npz, the tables that theory.rem.interpolated_tables reads: about six minutes.

    python -m theory.rem.make_tables

Beside the series in the length it holds the pair tables of a few lengths as they are, because
`theory.rem.integrals` needs most of a second for one.
"""

import io

import numpy as np

from jaxformer.io.run_folder import write_atomically
from theory.quadrature import chebyshev_fit, chebyshev_nodes
from theory.rem.integrals import pair_table, row_statistics
from theory.rem.interpolated_tables import FILE, SCALE, length_at

LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
N_LENGTHS, N_ROW, N_PAIR, N_RHO = 20, 48, 32, 20


def lengths() -> np.ndarray:
    """Where the series in the length is fitted."""
    return length_at(chebyshev_nodes(N_LENGTHS))


def row_table(T: float) -> np.ndarray:
    """(4, n): the coefficients of the four series of `Rows` in the spread."""
    stretch = 1 / (1 - chebyshev_nodes(N_ROW))
    rows = [row_statistics(s, T) for s in SCALE * np.sqrt(np.log(T) * (stretch**2 - 1))]
    overlap, moment, cube, entropy = (
        np.array([getattr(row, name) for row in rows])
        for name in ("self_overlap", "second_moment", "cube", "entropy")
    )
    logs = np.log(T * overlap), np.log(T**2 * moment), np.log(T**2 * cube)
    return np.stack([chebyshev_fit(column) for column in (*logs, entropy * stretch)])


def main() -> None:
    rows = chebyshev_fit(np.stack([row_table(T) for T in lengths()]))
    arrays: dict[str, np.ndarray] = dict(
        zip(("overlap", "moment", "cube", "entropy"), np.swapaxes(rows, 0, 1))
    )
    arrays["pair"] = chebyshev_fit(np.stack([pair_table(T, N_PAIR, N_RHO) for T in lengths()]))
    arrays |= {f"pair_{T}": pair_table(T, 24, 16) for T in LENGTHS}
    np.savez_compressed(buffer := io.BytesIO(), **arrays)  # type: ignore
    write_atomically(FILE, buffer.getvalue())


if __name__ == "__main__":
    main()
