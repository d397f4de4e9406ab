"""One attention layer at initialisation (arXiv 2505.24333): figures 1a,b, 3, B.1, B.2 and C.1.

Theory is `exact` (theory.rem at T tokens, wide limit) beside the paper's `limit` (T -> infinity).
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from experiments.shared.outcome import Outcome, exact
from experiments.shared.plots import COLOURS, pyplot
from jaxformer.models.attention import attention_scores, attention_weights
from jaxformer.models.layers import rms_normalise
from jaxformer.training.metrics import over_seeds
from theory import rem, signal
from theory.phase_map import attention_cosine

BERT = (0.02, 768, 64, 512)  # standard deviation of the weights, width, of a head, length
MAP = {"origin": "lower", "aspect": "auto", "cmap": "cividis"}


def maps(betas: tuple, length: int, width: int, seed: int, n_seeds: int) -> Outcome:
    """Figure 1a,b: attention maps of one head below and above beta_c(0) = sqrt(2)."""
    plt = pyplot()
    figure, axes = plt.subplots(1, len(betas), figsize=(4.6 * len(betas), 4), layout="constrained")
    arrays, metrics, baselines = {}, {}, {}
    for axis, beta in zip(np.atleast_1d(axes), betas, strict=True):
        A_SxTxT = np.stack(
            [_head(key, beta, 0.0, length, width)[0] for key in _keys(seed, n_seeds)]
        )
        fractions_S = [_entropy(A) / np.log(length) for A in A_SxTxT]
        predicted = float(rem.attention_entropy(beta, 0.0, length)) / np.log(length)
        name = f"entropy_fraction_beta_{beta:g}"
        metrics[name], baselines[f"exact_{name}"] = over_seeds(fractions_S), predicted
        baselines[f"limit_{name}"] = max(0.0, 1 - beta**2 / 2)
        arrays[f"weights_beta_{beta:g}"] = A_SxTxT[0]
        shown = np.log10(np.maximum(A_SxTxT[0], 1e-4))
        image = axis.imshow(shown, cmap="cividis", vmin=-4, vmax=0)
        kind = "sees everything" if beta < 2**0.5 else "looks at few tokens"
        axis.set(xlabel="source token s", ylabel="token t")
        axis.set_title(
            rf"$\beta={beta:g}$: a row {kind}" + "\n"
            f"entropy / ln T: {np.mean(fractions_S):.3f} measured, {predicted:.3f} exact theory",
            fontsize=10,
        )
    figure.colorbar(image, ax=axes, label=r"$\log_{10} A_{ts}$", extend="min")
    metrics["bert_beta"] = over_seeds([_beta_of_bert(key) for key in _keys(seed, n_seeds)])
    std, width, d_head, length = BERT
    baselines["exact_bert_beta"] = float(signal.effective_beta(std, width, length))
    baselines["paper_bert_beta"] = float(signal.effective_beta_paper(std, d_head, length))
    return Outcome(figure, arrays, metrics, baselines)


def phase(
    length: int, width: int, beta_max: float, points: int, measured: tuple, seed: int, n_seeds: int
) -> Outcome:
    """Figure 3: the cosine of two tokens after attention over (beta, rho), theory and measured."""
    beta, rho = np.linspace(0, beta_max, points), np.linspace(0, 1, points)
    theory = {
        name: attention_cosine(beta[:, None], rho[None], T)
        for name, T in (("limit", None), ("exact", length))
    }
    some_beta = np.linspace(0, beta_max, measured[0])
    some_rho = np.linspace(0, 0.95, measured[1])
    keys = _keys(seed, n_seeds)
    seen_SxBxR = np.array(
        [
            [[_mean_cosine(k, b, r, length, width) for r in some_rho] for b in some_beta]
            for k in keys
        ]
    )
    seen_BxR = seen_SxBxR.mean(0)
    predicted = {
        name: attention_cosine(some_beta[:, None], some_rho[None], T)
        for name, T in (("limit", None), ("exact", length))
    }

    def rms(name, seen):  # at rho = 0 pairs of random tokens differ too much for one number
        return float(np.sqrt(np.mean((predicted[name] - seen)[:, 1:] ** 2)))

    gaps = {name: rms(name, seen_BxR) for name in predicted}
    plt = pyplot()
    figure, axes = plt.subplots(1, 3, figsize=(12.5, 4), layout="constrained", sharey=True)
    panels = (
        (theory["limit"], "paper: limit $T\\to\\infty$", (0, beta_max, 0, 1)),
        (theory["exact"], f"exact theory, $T={length}$", (0, beta_max, 0, 1)),
        (seen_BxR, f"measured, $T={length}$, $d={width}$", _edges(some_beta) + _edges(some_rho)),
    )
    edge = np.linspace(0, 1, 400)[:-1]
    for axis, (values, title, extent) in zip(axes, panels, strict=True):
        image = axis.imshow(values.T, extent=extent, vmin=0, vmax=1, **MAP)
        curve = np.asarray(rem.critical_beta(edge))
        axis.plot(curve, edge, color=COLOURS[1], lw=2, label=r"$\beta_c(\rho)$")
        axis.set(xlabel=r"score scale $\beta$", title=title, xlim=(0, beta_max), ylim=(0, 1))
    axes[0].set_ylabel(r"cosine of two tokens before, $\rho$")
    axes[0].legend(loc="lower left")
    figure.colorbar(image, ax=axes, label=r"cosine after attention, $SA(\rho)$")
    figure.suptitle(
        "Low $\\beta$ makes tokens alike, high $\\beta$ keeps them apart; root mean square error "
        rf"at $\rho>0$: limit {gaps['limit']:.3f}, exact {gaps['exact']:.3f}"
    )
    arrays = {"beta": beta, "rho": rho, **theory, "measured_beta": some_beta}
    arrays |= {"measured_rho": some_rho, "measured": seen_SxBxR}
    error = over_seeds([rms("exact", one) for one in seen_SxBxR])
    baselines = {f"{name}_rms_error": float(gap) for name, gap in gaps.items()}
    return Outcome(figure, arrays, {"exact_rms_error_of_one_network": error}, baselines)


def overlap(lengths: tuple, beta_max: float, points: int, rows: int, seed: int) -> Outcome:
    """Figure B.1: Y_q against beta at several T, with Monte Carlo rows."""
    beta, some = np.linspace(0, beta_max, 121), np.linspace(0.15, beta_max, points)
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
    arrays, worst, gaps = {"beta": beta, "measured_beta": some}, 0.0, {"exact": [], "limit": []}
    rng = np.random.default_rng(seed)
    for colour, T in zip(COLOURS, lengths):
        line = np.asarray(rem.self_overlap(beta, 0.0, T))
        rule = np.asarray(rem.self_overlap_heuristic(beta[beta < 2**0.5], 0.0, T))
        mean, error = np.array([_overlap_of_rows(rng, b, T, rows) for b in some]).T
        predicted = np.asarray(rem.self_overlap(some, 0.0, T))
        worst = max(worst, float(np.abs((mean - predicted) / error).max()))
        gaps["exact"].append(mean - predicted)
        gaps["limit"].append(mean - np.asarray(rem.self_overlap(some, 0.0)))
        axis.plot(beta, line, color=colour, lw=1.8, label=f"$T={T:,}$")
        axis.plot(beta[beta < 2**0.5], rule, color=colour, lw=1, ls=":")
        axis.errorbar(some, mean, error, color=colour, fmt="o", ms=4, capsize=2)
        arrays |= {f"exact_{T}": line, f"measured_{T}": mean, f"measured_sem_{T}": error}
    arrays["limit"] = np.asarray(rem.self_overlap(beta, 0.0))
    axis.plot(beta, arrays["limit"], color="black", lw=1.5, ls="--", label=r"limit $T\to\infty$")
    axis.plot([], [], color="0.4", lw=1, ls=":", label=r"paper: $T^{-1+(\beta/\beta_c)^2}$")
    axis.axvline(2**0.5, color="0.6", lw=0.8)
    rms = {name: float(np.sqrt(np.mean(np.concatenate(g) ** 2))) for name, g in gaps.items()}
    axis.set(
        xlabel=r"score scale $\beta$", ylabel=r"$Y_q = E\,\Sigma_s A_{ts}^2$", ylim=(-0.02, 0.8)
    )
    axis.set_title(
        "The transition at $\\beta_c=\\sqrt{2}$ is smooth even at "
        f"$T={max(lengths):,}$:\nerror of the exact theory {rms['exact']:.4f} (noise), of the "
        f"limit {rms['limit']:.3f}",
        fontsize=10,
    )
    axis.legend(fontsize=8, loc="upper left")
    metrics = {"exact_rms_error": exact(rms["exact"]), "exact_worst_z": exact(worst)}
    return Outcome(figure, arrays, metrics, {"limit_rms_error": rms["limit"]})


def moments(
    rhos: tuple, length: int, width: int, beta_max: float, points: int, seed: int, n_seeds: int
) -> Outcome:
    """Figure B.2: SA(q) and SA(p) against beta, q = 1: theory at T, the limit, measured heads."""
    beta, some = np.linspace(0, beta_max, 121), np.linspace(0.2, beta_max, points)
    plt = pyplot()
    figure, axes = plt.subplots(
        1, len(rhos), figsize=(3.6 * len(rhos), 3.8), layout="constrained", sharey=True
    )
    arrays, metrics, baselines = {"beta": beta, "measured_beta": some}, {}, {}
    for axis, rho in zip(np.atleast_1d(axes), rhos, strict=True):
        keys = _keys(seed, n_seeds)
        seen_SxBx2 = np.array(
            [[_second_moments(k, b, rho, length, width) for b in some] for k in keys]
        )
        for i, (name, function) in enumerate((("q", rem.self_overlap), ("p", rem.cross_overlap))):
            line, at = (
                (1 - rho) * np.asarray(function(x, rho, length)) + rho for x in (beta, some)
            )
            limit = (1 - rho) * np.asarray(function(beta, rho)) + rho
            colour, label = COLOURS[i], f"$SA({name})$"
            axis.plot(beta, line, color=colour, lw=1.8, label=f"{label}, $T={length}$")
            axis.plot(beta, limit, color=colour, lw=1.2, ls="--", label=f"{label}, limit")
            mean, sem = seen_SxBx2[..., i].mean(0), seen_SxBx2[..., i].std(0) / n_seeds**0.5
            axis.errorbar(some, mean, sem, color=colour, fmt="o", ms=4, capsize=2)
            error = np.sqrt(np.mean((mean - at) ** 2))
            metrics[f"exact_rms_error_{name}_rho_{rho:g}"] = exact(error)
            far = (1 - rho) * np.asarray(function(some, rho)) + rho
            baselines[f"limit_rms_error_{name}_rho_{rho:g}"] = float(
                np.sqrt(np.mean((mean - far) ** 2))
            )
            arrays |= {f"{name}_exact_rho_{rho:g}": line, f"{name}_measured_rho_{rho:g}": mean}
        axis.axvline(float(rem.critical_beta(rho)), color="0.6", lw=0.8)
        axis.set(xlabel=r"score scale $\beta$", title=rf"$\rho={rho:g}$", ylim=(0, 1.03))
    np.atleast_1d(axes)[0].set_ylabel(r"second moment after attention, $q=1$")
    np.atleast_1d(axes)[0].legend(fontsize=7, loc="upper left")
    figure.suptitle(
        "$SA(q)$ leaves $\\rho$ well before $\\beta_c$ (grey), and $SA(p)>\\rho$: at finite $T$ "
        "neither is the limit's",
        fontsize=11,
    )
    return Outcome(figure, arrays, metrics, baselines)


def spectrum(betas: tuple, length: int, width: int, seed: int, n_seeds: int) -> Outcome:
    """Figure C.1: eigenvalues of the attention matrix, and the theory's radius of their bulk."""
    plt = pyplot()
    figure, axes = plt.subplots(1, len(betas), figsize=(3 * len(betas), 3.5), layout="constrained")
    arrays, metrics, baselines = {}, {}, {}
    angle = np.linspace(0, 2 * np.pi, 200)
    for axis, beta in zip(np.atleast_1d(axes), betas, strict=True):
        values_SxT = np.stack(
            [np.linalg.eigvals(_head(k, beta, 0.0, length, width)[0]) for k in _keys(seed, n_seeds)]
        )
        second_S = np.sort(np.abs(values_SxT), 1)[:, -2]
        radius = float(rem.spectrum_radius(beta, 0.0, length))
        name = f"radius_beta_{beta:g}"
        metrics[name], baselines[f"theory_{name}"] = over_seeds(second_S), radius
        arrays[f"eigenvalues_beta_{beta:g}"] = values_SxT[0]
        values_T = values_SxT[0]
        axis.plot(np.real(values_T), np.imag(values_T), "o", ms=2, alpha=0.5, color=COLOURS[0])
        axis.plot(radius * np.cos(angle), radius * np.sin(angle), color=COLOURS[1], lw=1.5)
        axis.plot([1], [0], "*", ms=9, color=COLOURS[2])
        axis.set(aspect="equal", xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), xlabel="real part")
        axis.set_title(
            rf"$\beta={beta:g}$" + f"\nradius {second_S.mean():.3f}, theory {radius:.3f}",
            fontsize=10,
        )
    np.atleast_1d(axes)[0].set_ylabel("imaginary part")
    figure.suptitle(
        f"The gap below the eigenvalue 1 (star) closes as $\\beta$ grows; $T={length}$, $d={width}$"
    )
    return Outcome(figure, arrays, metrics, baselines)


# Networks ----------------------------------------------------------------------------------------


def _keys(seed: int, n_seeds: int) -> list[jax.Array]:
    return [jax.random.key(seed + i) for i in range(n_seeds)]


@partial(jax.jit, static_argnames=("length", "width"))
def _layer(key, beta, rho, length, width):
    """A (T, T) of one head, and its output without the values' matrix (T, d); float32."""
    shared_key, own_key, q_key, k_key = jax.random.split(key, 4)
    normal = partial(jax.random.normal, dtype=jnp.float32)
    beta, rho = jnp.asarray(beta, jnp.float32), jnp.asarray(rho, jnp.float32)
    own_TxN = normal(own_key, (length, width))
    x_TxN = jnp.sqrt(rho) * normal(shared_key, (1, width)) + jnp.sqrt(1 - rho) * own_TxN
    x_TxN = rms_normalise(x_TxN)
    deviation = jnp.sqrt(beta * np.float32(np.log(length) ** 0.5) / width)
    q, k = ((x_TxN @ (deviation * normal(key, (width, width))))[:, None] for key in (q_key, k_key))
    A_TxT = attention_weights(attention_scores(q, k))[0]
    return A_TxT, A_TxT @ x_TxN


def _head(key, beta, rho, length, width) -> tuple[np.ndarray, np.ndarray]:
    A_TxT, out_TxN = _layer(key, beta, rho, length, width)
    return np.asarray(A_TxT, float), np.asarray(out_TxN, float)


def _beta_of_bert(key) -> float:
    """beta of one head of BERT as it is usually initialised: deviation of scores / sqrt(ln T)."""
    std, width, d_head, length = BERT
    tokens, *weights = (
        jax.random.normal(k, shape)
        for k, shape in zip(
            jax.random.split(key, 3),
            ((length, width), (width, d_head), (width, d_head)),
            strict=True,
        )
    )
    query_TxG, key_TxG = (rms_normalise(tokens) @ (std * w) for w in weights)
    return float((query_TxG @ key_TxG.T / d_head**0.5).std() / np.log(length) ** 0.5)


def _mean_cosine(key, beta, rho, length, width) -> float:
    out = _head(key, beta, rho, length, width)[1]
    out /= np.linalg.norm(out, axis=1, keepdims=True)
    return float((np.sum(out.sum(0) ** 2) - length) / (length * (length - 1)))


def _second_moments(key, beta, rho, length, width) -> tuple[float, float]:
    """SA(q), SA(p): the mean of |out|^2 / d, and of the products of two tokens' outputs."""
    out = _head(key, beta, rho, length, width)[1]
    square = np.sum(out**2) / width
    pairs = np.sum(out.sum(0) ** 2) / width - square
    return square / length, pairs / (length * (length - 1))


def _overlap_of_rows(rng, beta: float, T: int, rows: int) -> tuple[float, float]:
    """Mean and standard error of sum_s A_ts^2 over softmax rows of T independent scores."""
    values = []
    for _ in range(max(rows, 16)):
        scores = beta * np.log(T) ** 0.5 * rng.standard_normal(T)
        a = np.exp(scores - scores.max())
        values.append(np.sum(a**2) / np.sum(a) ** 2)
    return float(np.mean(values)), float(np.std(values, ddof=1) / len(values) ** 0.5)


# Theory ------------------------------------------------------------------------------------------


def _entropy(A_TxT: np.ndarray) -> float:
    return float(-np.sum(A_TxT * np.log(np.maximum(A_TxT, 1e-300)), -1).mean())


def _edges(centres: np.ndarray) -> tuple[float, float]:
    half = (centres[1] - centres[0]) / 2
    return centres[0] - half, centres[-1] + half
