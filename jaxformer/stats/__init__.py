"""Is a difference between two runs real?

    from jaxformer.stats import Number, difference, number_over_seeds

    left = number_over_seeds({0: 0.91, 1: 0.93, 2: 0.92})      one score for each seed
    right = number_over_seeds({0: 0.88, 1: 0.91, 2: 0.89})
    print(difference(left, right))                             paired, because they share seeds
    difference(left, right).verdict()                          above, below or cannot tell

One statistic decides every difference here, in `jaxformer.compare`, `litmus` and `anatomy` as well
as in the ledger of the papers. It asks for few seeds and is honest about them: Student's t, paired
seeds where runs share them, and the error of the finite test set.
"""

from jaxformer.stats.differences import (
    ABOVE,
    BELOW,
    UNDECIDED,
    Difference,
    Number,
    difference,
    difference_on_shared_seeds,
    mean_and_sem,
    p_value,
)
from jaxformer.stats.members import number_over_seeds, share_of_seeds
from jaxformer.stats.multiplicity import benjamini_hochberg, holm
from jaxformer.stats.power import power, seeds_for_distance, seeds_for_share
from jaxformer.stats.standard_error import standard_error

__all__ = [
    "ABOVE",
    "BELOW",
    "UNDECIDED",
    "Difference",
    "Number",
    "benjamini_hochberg",
    "difference",
    "difference_on_shared_seeds",
    "holm",
    "mean_and_sem",
    "number_over_seeds",
    "p_value",
    "power",
    "seeds_for_distance",
    "seeds_for_share",
    "share_of_seeds",
    "standard_error",
]
