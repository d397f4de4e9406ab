"""Arguments of `jaxformer.train` that name rules or data of the user."""

import pytest

from jaxformer.core.errors import UserError
from jaxformer.training.arguments import unfreeze_rules


def test_a_wrong_rule_of_unfreeze_says_what_is_wrong_with_the_rule():
    """It is not taken for a wrong form of the whole argument."""
    with pytest.raises(UserError, match=r"^'\(' is not a regular expression"):
        unfreeze_rules([(3, (("(", "train"),))])
    with pytest.raises(UserError, match=r"^unfreeze must be a sequence of"):
        unfreeze_rules([3])
