"""The standard error of means of arrays, for bars and tables; `mean_and_sem` serves plain lists."""

import numpy as np


def standard_error(values_SxK: np.ndarray) -> np.ndarray:
    """The standard error of the mean over the first axis (the seeds), NaN for a single seed.

    It is no interval: with three seeds the 95 % interval is 4.3 of these wide on each side. To say
    whether two means differ, use `difference`.
    """
    n = len(values_SxK)
    if n == 1:
        return np.full(np.shape(values_SxK)[1:], np.nan)
    return np.std(values_SxK, axis=0, ddof=1) / n**0.5
