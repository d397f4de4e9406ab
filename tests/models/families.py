"""Writes folders of random tiny models, for the scripts of tests/reference with transformers.

    python tests/models/families.py FOLDERS [KIND ..]

A KIND is a key of tiny_configs.CONFIGS, by default all of them.
"""

import sys
from pathlib import Path

import numpy as np

from jaxformer.models.pretrained import tiny
from tests.models.tiny_configs import CONFIGS

VOCAB = 24
TOKENS = np.random.RandomState(0).randint(2, VOCAB, (2, 12))
REAL = np.ones((2, 12), bool)
REAL[0, :4] = False


def padded(kind: str) -> np.ndarray:
    """Returns the tokens with the model's padding token in the first four places of one row."""
    return np.where(REAL, TOKENS, CONFIGS[kind].get("pad_token_id") or 0)


if __name__ == "__main__":
    for name in sys.argv[2:] or CONFIGS:
        tiny.save(CONFIGS[name], Path(sys.argv[1]) / name, vocab=VOCAB)
