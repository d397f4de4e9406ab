"""Hidden Markov chain classification with designed attention heads (arXiv 2405.15926, section 4.1).

A two-state chain s_1 .. s_T flips with probability .3 (label +1) or .7 (label -1). Token t is
    x_t = (v_{s_t} + sigma_par Par eta_t + sigma_perp (1 - Par) eta_t,  onehot(t)),   eta ~ N(0, 1)
with v_+ = sqrt(2) (1..1, 0..0), v_- = sqrt(2) (0..0, 1..1) and Par the projection on their span.
Token 0 has zero features. A token has n = features + T + 1 dimensions.

A head is a bilinear form W: Omega_st = softmax over keys s of hardness * x_s^T W x_t.
    previous  attends t-1 if it has the state of t, else token 0; solves the classification
    uniform   averages over all tokens; removes noise
    random    Gaussian W whose blocks (features, positions, cross) contribute equally

All functions use NumPy in float64. The draws depend on the seeds only, to the bit. In names, B is
examples, T tokens or queries, S keys, F features, n or N dimensions of a token and H heads.
"""

from collections.abc import Sequence

import numpy as np

from jaxformer.core.errors import UserError, check_choice, check_range
from jaxformer.models.path_features import attentioned_input as combine
from jaxformer.models.path_features import readout_queries

HEADS = ("previous", "uniform", "random")
DESIGNS = {  # {design: the kinds of the heads of each layer}
    "four_paths": (("previous", "random"), ("uniform", "random")),
    "two_paths": (("previous", "random"), ("uniform",)),
    "two_paths_uniform": (("previous", "uniform"), ("uniform",)),
}


def examples(
    seed: int,
    count: int,
    length: int = 30,
    features: int = 200,
    flip: tuple[float, float] = (0.3, 0.7),
    sigma_par: float = 1.0,
    sigma_perp: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Draws examples.

    Args:
        seed: the seed of all draws.
        count: the number of examples, even.
        length: the length T of the chain.
        features: the number of features of a token, even.
        flip: the probabilities of a flip of the state, for labels +1 and -1.
        sigma_par: deviation of the noise in the span of v_+ and v_-.
        sigma_perp: deviation of the noise perpendicular to this span.

    Returns:
        Tokens (count, length + 1, features + length + 1), and labels (count,): +1 in the first
        half, -1 in the second.
    """
    if count < 2 or count % 2 or features < 2 or features % 2 or length < 1:
        raise UserError(
            "the hidden Markov task needs an even count and an even number of features, at least "
            f"2, and length at least 1; got count={count}, features={features}, length={length}."
        )
    for name, size in dict(count=count, features=features, length=length).items():
        check_range(f"{name} of the hidden Markov task", size, 1, 10**6)
    for name, sigma in dict(sigma_par=sigma_par, sigma_perp=sigma_perp).items():
        check_range(name, sigma, 0)
    check_range("seed", seed, 0, 2**63)
    if not all(0 <= p <= 1 for p in flip):
        raise UserError(f"flip probabilities must be in [0, 1], got {flip}.")
    rng = np.random.default_rng(seed)
    labels_B = np.repeat([1.0, -1.0], count // 2)
    start_B = np.where(rng.random(count) >= 0.5, 1, -1)
    flips_BxT = rng.random((count, length - 1)) < np.where(labels_B > 0, *flip)[:, None]
    signs_BxT = np.cumprod(np.where(flips_BxT, -1, 1), axis=1)
    states_BxT = start_B[:, None] * np.concatenate([np.ones((count, 1), int), signs_BxT], axis=1)
    noise_BxTxF = rng.standard_normal((count, features, length)).transpose(0, 2, 1)

    states_2xF = state_vectors(features)
    units_2xF = states_2xF / features**0.5
    par_BxTxF = noise_BxTxF @ units_2xF.T @ units_2xF
    observed_BxTxF = states_2xF[np.where(states_BxT > 0, 0, 1)]
    observed_BxTxF += sigma_par * par_BxTxF + sigma_perp * (noise_BxTxF - par_BxTxF)

    tokens_BxTxn = np.zeros((count, length + 1, features + length + 1))
    tokens_BxTxn[:, 1:, :features] = observed_BxTxF
    tokens_BxTxn[:, :, features:] = np.eye(length + 1)
    return tokens_BxTxn, labels_B


def state_vectors(features: int) -> np.ndarray:
    """Returns v_+ and v_-, (2, features): orthogonal with squared norm `features`."""
    return 2**0.5 * np.repeat(np.eye(2), features // 2, axis=1)


def bilinear_forms(
    head_seed: int,
    design: str | Sequence[Sequence[str]] = "four_paths",
    length: int = 30,
    features: int = 200,
) -> list[np.ndarray]:
    """Returns the bilinear forms W of the heads, without the hardness.

    Args:
        head_seed: the seed of random heads, which are drawn in the order of the layers.
        design: a name of DESIGNS, or the kinds of heads by layer.
        length: the length T of the chain.
        features: the number of features of a token.

    Returns:
        An array (H_l, n, n) for each layer, with the key on the left and the query on the right.
    """
    if isinstance(design, str):
        check_choice("head design", design, DESIGNS)
        design = DESIGNS[design]
    for layer in design:
        for kind in layer:
            check_choice("head", kind, HEADS)
    rng = np.random.default_rng(head_seed)
    return [np.stack([_head(kind, length, features, rng) for kind in layer]) for layer in design]


def attention_maps(
    tokens_BxTxn: np.ndarray,
    forms: Sequence[np.ndarray],
    readout: str = "last",
    hardness: float = 10.0,
) -> list[np.ndarray]:
    """Returns the attention Omega^(l), (B, H_l, key s, query t), of each layer.

    The last layer has only the queries of the readout.

    Args:
        tokens_BxTxn: tokens of the examples.
        forms: for each layer, the bilinear forms of its heads, (H_l, n, n).
        readout: the queries of the last layer, see `readout_queries`.
        hardness: factor of the scores before the softmax.
    """
    maps = []
    for layer, form_HxNxN in enumerate(forms):
        is_last = layer == len(forms) - 1
        queries_BxTxn = readout_queries(tokens_BxTxn, readout) if is_last else tokens_BxTxn
        projected_HxBxTxn = queries_BxTxn[None] @ form_HxNxN.swapaxes(1, 2)[:, None]
        scores_HxBxSxT = tokens_BxTxn[None] @ projected_HxBxTxn.swapaxes(2, 3)
        scores_HxBxSxT = hardness * scores_HxBxSxT
        weights_HxBxSxT = np.exp(scores_HxBxSxT - scores_HxBxSxT.max(2, keepdims=True))
        weights_HxBxSxT /= weights_HxBxSxT.sum(2, keepdims=True)
        maps.append(weights_HxBxSxT.swapaxes(0, 1))
    return maps


def attentioned_input(
    tokens_BxTxn: np.ndarray,
    forms: Sequence[np.ndarray],
    readout: str = "last",
    hardness: float = 10.0,
    chunk: int = 200,
) -> np.ndarray:
    """Returns the path inputs xi, (B, prod_l H_l, n): tokens summed with the attention of a path.

    A path is one head h_l of each layer l; h_1 is the slowest index. Args as in `attention_maps`.
    The function computes `chunk` examples at a time to bound the memory.
    """
    parts = [tokens_BxTxn[i : i + chunk] for i in range(0, len(tokens_BxTxn), chunk)]
    return np.concatenate(
        [combine(part, attention_maps(part, forms, readout, hardness)) for part in parts]
    )


def _head(kind: str, length: int, features: int, rng: np.random.Generator) -> np.ndarray:
    """Returns the bilinear form W of a head, (key n, query n)."""
    tokens = length + 1
    n = features + tokens
    form_NxN = np.zeros((n, n))
    feature, position = slice(0, features), slice(features, n)
    if kind == "previous":
        # (v_+ - v_-) / features reads the state of a token as +1 or -1.
        plus_F, minus_F = state_vectors(features)
        state_F = (plus_F - minus_F) / features
        form_NxN[feature, feature] = np.outer(state_F, state_F)
        # Without noise the previous token scores 2 in the same state and 0 in the other, any other
        # token at most 1. So token 0, which scores 1.5, is attended in the second case.
        positions_TxT = np.eye(tokens, k=1)
        positions_TxT[0, 1:] = 1.5
        form_NxN[position, position] = positions_TxT
    elif kind == "uniform":
        form_NxN[position, position] = 1
    else:
        form_NxN[feature, feature] = rng.standard_normal((features, features)) / features
        form_NxN[position, position] = rng.standard_normal((tokens, tokens))
        form_NxN[feature, position] = rng.standard_normal((features, tokens)) / features**0.5
        form_NxN[position, feature] = rng.standard_normal((tokens, features)) / features**0.5
    return form_NxN
