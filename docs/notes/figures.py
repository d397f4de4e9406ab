"""Draws the figures of the notes: `python docs/notes/figures.py` writes them into this folder."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.report import figure_style
from jaxformer.report.figure_style import COLOURS
from theory import covariance_sde, rem
from theory.one_step import Setting, attention_logits

FOLDER = Path(__file__).parent
# Accuracies in %: the published one of a model, and that of the best trivial predictor on 4,000
# unseen examples.
CHANCE_LEVELS = {
    "MixiT, retrieval, 30 pairs": (11.24, 13.3),
    "MixiT, k-hop, k up to 16": (48.58, 49.2),
    "random transformer, addition": (23.53, 24.8),
    "MixiT, Dyck-1": (96.17, 97.8),
}
TAUS = (0.02, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0)  # depth / width
LAYERS, WIDTH = (1, 5, 25, 50, 150, 250), 50  # depths and width of the measured networks


@figure_style.styled
def chance_levels():
    """Returns bars of published scores beside those of trivial predictors."""
    figure, axes = figure_style.panels(1, 1, (figure_style.PAGE, 2.2))
    axis, positions = axes[0][0], np.arange(len(CHANCE_LEVELS))
    for i, label in enumerate(("published", "trivial predictor")):
        scores = [pair[i] for pair in CHANCE_LEVELS.values()]
        bars = axis.barh(positions + 0.38 * i, scores, 0.36, color=COLOURS[i], label=label)
        axis.bar_label(bars, fmt="%.1f", padding=2)
    axis.set(
        yticks=positions + 0.19, yticklabels=[*CHANCE_LEVELS], xlabel="accuracy in %", xlim=(0, 112)
    )
    axis.invert_yaxis()
    axis.legend(loc="upper right")
    axis.set_title("Four published scores are not above a trivial predictor")
    return figure


@figure_style.styled
def rank_collapse():
    """Returns quartiles of the correlation of two tokens against depth / width."""
    with jax.enable_x64(True):
        phi0 = 0.5 * jnp.eye(4) + 0.5  # covariance of four tokens before the first layer
        phi = covariance_sde.predict(
            jax.random.key(0), phi0, tau=TAUS[-1], paths=4000, steps=1000, times=TAUS
        )
        networks = covariance_sde.measure(
            jax.random.key(1),
            phi0,
            width=WIDTH,
            depth=LAYERS[-1],
            samples=2000,
            layers=LAYERS,
        )
        limit = np.abs(covariance_sde.correlation(phi))
        finite = np.abs(covariance_sde.correlation(networks))
    figure, axes = figure_style.panels(1, 1, (figure_style.PAGE, 2.4))
    axis = axes[0][0]
    low, median, high = np.quantile(limit, (0.25, 0.5, 0.75), axis=0)
    axis.fill_between(TAUS, low, high, alpha=0.25, color=COLOURS[0], label="equation, quartiles")
    axis.plot(TAUS, median, color=COLOURS[0], label="equation, median")
    depths = np.array(LAYERS) / WIDTH
    axis.plot(
        depths, np.median(finite, 0), "o", color=COLOURS[1], label="networks of width 50, median"
    )
    axis.axvline(12 / 512, color="0.5", ls=":", lw=1)
    axis.text(0.025, 0.08, "12 layers of\nwidth 512", fontsize=7)
    axis.set(
        xscale="log", ylim=(0, 1.02), xlabel="depth / width", ylabel="|correlation| of two tokens"
    )
    axis.legend(loc="lower right")
    axis.set_title("The equation of Theorem 2.1 collapses the tokens onto one line")
    return figure


@figure_style.styled
def early_attention():
    """Returns the difference of attention logits of Theorem 2 (4) against the noise alpha.

    xi_{q->j} is the attention logit of an ordinary token j that follows the trigger q, xi_{q->tau}
    that of the noise token after q. alpha is the probability of the noise, N the number of ordinary
    tokens and T the length of a sequence.
    """
    figure, axes = figure_style.panels(1, 1, (figure_style.PAGE, 2.2))
    axis, alphas = axes[0][0], np.linspace(0.1, 0.6, 21)
    N, T = 256, 2048
    with jax.enable_x64(True):
        for i, (label, excluded) in enumerate(
            (("the target may be the trigger", False), ("the target is never the trigger", True))
        ):
            setting = Setting("exact", (1.0, 1.0), excluded)
            differences = [float(attention_logits(N, T, a, setting).over_noise) for a in alphas]
            values = [difference * N**4 for difference in differences]  # the leading order is N^-4
            axis.plot(alphas, values, color=COLOURS[i], label=label)
    axis.axhline(0, color="0.5", lw=0.8)
    axis.set(
        yscale="symlog", xlabel=r"noise $\alpha$", ylabel=r"$N^4(\xi_{q\to j}-\xi_{q\to\tau})$"
    )
    axis.legend(loc="center right")
    axis.set_title("Early attention prefers the noise if the target may be the trigger")
    return figure


@figure_style.styled
def overlap_exponent():
    """Returns the overlap Y_q of an attention row with itself against the number of tokens T.

    The lines are the exact average and the power that the paper prints, for b = beta / beta_c.
    """
    figure, axes = figure_style.panels(1, 1, (figure_style.PAGE, 2.4))
    axis, lengths = axes[0][0], np.logspace(2, 8, 25)
    with jax.enable_x64(True):
        for i, b in enumerate((0.4, 0.6, 0.8)):
            beta = b * np.sqrt(2)  # beta_c = sqrt(2)
            exact = [float(rem.self_overlap(beta, 0.0, T)) for T in lengths]
            printed = [float(rem.self_overlap_heuristic(beta, 0.0, T)) for T in lengths]
            axis.plot(lengths, exact, color=COLOURS[i], label=rf"exact, $\beta={b}\,\beta_c$")
            axis.plot(lengths, printed, "--", color=COLOURS[i])
    axis.plot([], [], "k--", label="printed exponent")
    axis.set(xscale="log", yscale="log", xlabel="tokens T", ylabel=r"$Y_q$")
    axis.legend(fontsize=7)
    axis.set_title("The overlap falls more slowly than exp(-entropy)")
    return figure


def main() -> None:
    for draw in (chance_levels, rank_collapse, early_attention, overlap_exponent):
        draw().savefig(FOLDER / f"{draw.__name__}.png", dpi=150)


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(__doc__)  # there are no options
    main()
