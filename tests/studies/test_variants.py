"""The library's variants of a decoder are those of the papers' configs."""

import pytest

from configs import common
from jaxformer import build
from jaxformer.core.partition import Partition
from jaxformer.core.variants import VARIANTS, label
from jaxformer.studies.variants import variant_of_decoder
from jaxformer.tasks.retrieval import Retrieval


@pytest.mark.parametrize("variant", common.VARIANTS)
def test_a_variant_is_the_network_and_the_partition_of_its_config(variant):
    task = Retrieval(max_pairs=4, vocab=16)
    config = common.training("any", {"variant": variant, "scale": "tiny", "preset": "paper"})
    common.decoder(config, width=32, layers=2, heads=4)
    model = variant_of_decoder(variant, task, width=32, layers=2, heads=4)
    assert model == build.model(config, task)
    assert Partition(VARIANTS[variant][1]).rules == build.partition(config).rules


def test_configs_have_no_table_of_their_own():
    assert common.VARIANTS is VARIANTS


def test_labels_are_spelt_as_in_the_papers():
    assert [*map(label, ("frozen_qk", "mixit", "random"))] == ["Frozen-QK", "MixiT", "Random"]
