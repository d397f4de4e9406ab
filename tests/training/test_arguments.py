"""Arguments of `jaxformer.train` that name rules or data of the user."""

import warnings

import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.models.decoder import decoder
from jaxformer.training.arguments import population_of, unfreeze_rules


def test_a_wrong_rule_of_unfreeze_says_what_is_wrong_with_the_rule():
    """It is not taken for a wrong form of the whole argument."""
    with pytest.raises(UserError, match=r"^'\(' is not a regular expression"):
        unfreeze_rules([(3, (("(", "train"),))])
    with pytest.raises(UserError, match=r"^unfreeze must be a sequence of"):
        unfreeze_rules([3])


@pytest.mark.parametrize(
    "seeds, rates, message",
    [
        (True, 1e-3, "seeds must be a number of seeds, or a list of them, got True"),
        ([True, False], 1e-3, "seeds must be whole numbers, got True"),
        (1, 1e-320, r"must be from 1.2e-38 to 3.4e\+38, got"),
        (1, [1e-3, 1e39], r"must be from 1.2e-38 to 3.4e\+38, got 1e\+39"),
    ],
)
def test_seeds_and_rates_that_training_cannot_use_are_refused(seeds, rates, message):
    with pytest.raises(UserError, match=message):
        population_of(seeds, rates)


@pytest.mark.parametrize("dtype", ["int32", "float8_e4m3fn", "x", "float64", 3])
def test_a_dtype_that_a_network_cannot_have_is_a_one_line_error(dtype):
    for field in ("dtype", "param_dtype"):
        with pytest.raises(UserError, match=f"^{field}") as error:
            decoder(
                vocab_size=4, length=4, width=8, layers=1, heads=1, mlp_width=8, **{field: dtype}
            )
        assert "\n" not in str(error.value)


def test_a_rate_at_which_all_members_diverge_is_not_chosen_and_gives_no_warning():
    members = population_of(2, [1e-2, 1e30])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen = members.choose([0.5, 0.4, -np.inf, -np.inf])
    assert chosen == [True, True, False, False]
