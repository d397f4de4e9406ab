"""The tiny task and network of the tests of training: one shape, so that programs are shared."""

from jaxformer.models.decoder import decoder
from jaxformer.tasks.retrieval import Retrieval

TASK = Retrieval(max_pairs=3, vocab=16)
BATCH_SIZE = 8


def network(**changes):
    """Returns a decoder of width 16 with 2 layers and 2 heads."""
    sizes = dict(vocab_size=TASK.vocab_size, length=TASK.length, width=16, layers=2, heads=2)
    fan_in = dict(init_std="fan_in", qk_init_std="fan_in", embed_init_std=1.0)
    return decoder(**sizes | dict(mlp_width=64) | fan_in | changes)
