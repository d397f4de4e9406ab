"""Computes overlaps.npz, the tables of theory.rem.interpolated_tables, in about six minutes.

    python -m theory.rem.make_tables

Besides the series in the length, the file has complete pair tables of seven lengths: computing one
takes most of a second (`theory.rem.integrals.pair_table`).
"""

import io
import sys

import numpy as np

from jaxformer.io.atomic_files import write_atomically
from theory.quadrature import chebyshev_fit, chebyshev_nodes
from theory.rem.coordinates import length_at, spread_at
from theory.rem.integrals import pair_table, row_statistics
from theory.rem.interpolated_tables import FILE

TABULATED_T = (16, 32, 64, 128, 256, 512, 1024)
# Terms of the series in the length, in the spread for rows and for pairs, and in rho.
N_LENGTH, N_SPREAD, N_PAIR_SPREAD, N_RHO = 20, 48, 32, 20
# A table of one length needs fewer terms than the series in the length.
N_PAIR_SPREAD_ONE, N_RHO_ONE = 24, 16


def length_nodes() -> np.ndarray:
    """Returns the lengths (N_LENGTH,) at which the series in the length interpolates."""
    return length_at(chebyshev_nodes(N_LENGTH))


def row_table(T: float) -> np.ndarray:
    """Returns Chebyshev coefficients (4, N_SPREAD) in the spread for rows of T tokens.

    The four series are ln(T E sum A^2), ln(T^2 E (sum A^2)^2), ln(T^2 E sum A^3) and
    H sqrt(1 + s^2/c^2), as in `interpolated_tables.Rows`.
    """
    x = chebyshev_nodes(N_SPREAD)
    rows = [row_statistics(s, T) for s in spread_at(x) * np.sqrt(np.log(T))]
    overlap, moment, cube, entropy = (
        np.array([getattr(row, name) for row in rows])
        for name in ("self_overlap", "second_moment", "cube", "entropy")
    )
    logs = np.log(T * overlap), np.log(T**2 * moment), np.log(T**2 * cube)
    return np.stack([chebyshev_fit(column) for column in (*logs, entropy / (1 - x))])


def main() -> None:
    lengths = length_nodes()
    rows = chebyshev_fit(np.stack([row_table(T) for T in lengths]))
    pairs = np.stack([pair_table(T, N_PAIR_SPREAD, N_RHO) for T in lengths])
    arrays: dict[str, np.ndarray] = dict(
        zip(("overlap", "moment", "cube", "entropy"), np.swapaxes(rows, 0, 1))
    )
    arrays["pair"] = chebyshev_fit(pairs)
    arrays |= {f"pair_{T}": pair_table(T, N_PAIR_SPREAD_ONE, N_RHO_ONE) for T in TABULATED_T}
    np.savez_compressed(buffer := io.BytesIO(), **arrays)  # type: ignore
    write_atomically(FILE, buffer.getvalue())


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(__doc__)  # there are no options
    main()
