"""Figures of one attention layer at initialisation (arXiv 2505.24333): 1a, b, 3, B.2 and C.1.

`exact` is the theory at T tokens (theory.rem, infinite width), `limit` the paper's T -> infinity.
Scores have variance beta^2 ln T, and rho is the cosine of two tokens before attention. q and p are
the second moments |x_t|^2 / N of a token and x_s . x_t / N of two tokens, SA(q) and SA(p) those
after attention. Axes: S heads, B beta, R rho.
"""

import numpy as np

from experiments.papers import plots
from experiments.papers.outcome import Figure, Outcome, exact, jackknife, root_mean_square
from experiments.papers.plots import COLOURS
from experiments.papers.two_failure_modes import one_head
from experiments.papers.two_failure_modes.one_head import LARGE_T, Heads
from jaxformer.training.metrics import over_seeds
from theory import rem, signal
from theory.phase_map import attention_cosine

BULK = 0.98  # the share of eigenvalues inside the measured radius
EDGE = BULK**0.5  # the BULK quantile of the moduli in a uniform disc, over its radius
MAP = {"origin": "lower", "aspect": "auto", "cmap": "cividis"}


def measure_maps(betas: tuple, heads: Heads) -> Outcome:
    """Measures Figure 1a, b: the entropy of attention rows below and above beta_c(0) = sqrt(2)."""
    outcome, log_T = Outcome(), np.log(heads.length)
    for beta in betas:
        A_SxTxT = np.stack([A_TxT for A_TxT, _ in heads.maps_and_outputs(beta, 0.0)])
        name = f"entropy_fraction_beta_{beta:g}"
        fractions_S = [one_head.entropy(A_TxT) / log_T for A_TxT in A_SxTxT]
        exact_entropy = float(rem.attention_entropy(beta, 0.0, heads.length))
        outcome.scalar(name, fractions_S, exact=exact_entropy / log_T)
        outcome.arrays[f"weights_beta_{beta:g}"] = A_SxTxT[0]
        outcome.baselines[f"limit_{name}"] = max(0.0, 1 - beta**2 / 2)  # T -> infinity
        at_1e8 = float(rem.attention_entropy(beta, 0.0, LARGE_T)) / np.log(LARGE_T)
        outcome.baselines[f"theory_{name}_at_1e8"] = at_1e8
    outcome.metrics["bert_beta"] = over_seeds([one_head.beta_of_bert(key) for key in heads.keys])
    std, width, d_head, length = one_head.BERT
    outcome.baselines["exact_bert_beta"] = float(signal.effective_beta(std, width, length))
    paper_beta = float(signal.effective_beta_paper(std, d_head, length))
    outcome.baselines["paper_bert_beta"] = paper_beta
    return outcome


def draw_maps(arrays, betas: tuple):
    figure, axes = plots.row(len(betas), (plots.PAGE, 2.7))
    descriptions = []
    for axis, beta in zip(axes, betas, strict=True):
        # Each panel has its own colour scale, because the left map is nearly flat.
        image = axis.imshow(np.log10(np.maximum(arrays[f"weights_beta_{beta:g}"], 1e-4)))
        plots.add_colour_bar(figure, image, axis, r"$\log_{10} A_{ts}$", shrink=0.8)
        axis.set(xlabel="source token s", ylabel="token t")
        name = f"entropy_fraction_beta_{beta:g}"
        values = f"{arrays[name].mean():.3f} (theory {arrays[f'exact_{name}']:.3f})"
        plots.set_title(axis, rf"$\beta={beta:g}$: entropy / $\ln T$ {values}")
        tokens = "all tokens" if beta < 2**0.5 else "few tokens"
        descriptions.append(rf"at $\beta={beta:g}$ a row attends to {tokens}")
    title = "; ".join(descriptions)
    plots.add_finding(
        figure,
        title[0].upper() + title[1:],
        "One random head; each map has its own colour scale.",
    )
    return figure


def measure_phase(beta_max: float, points: int, measured: tuple, heads: Heads) -> Outcome:
    """Measures Figure 3: the cosine of two tokens after attention, as a function of beta and rho.

    Args:
      beta_max: The largest beta.
      points: Grid points of the theory on each axis.
      measured: Grid points (beta, rho) at which heads are measured.
      heads: The random heads.
    """

    def theory(beta, rho, **lengths):  # {name: predicted cosines at this number of tokens}
        return {n: attention_cosine(beta[:, None], rho[None], T) for n, T in lengths.items()}

    beta, rho = np.linspace(0, beta_max, points), np.linspace(0, 1, points)
    beta_B, rho_R = np.linspace(0, beta_max, measured[0]), np.linspace(0, 0.95, measured[1])
    cosine_SxBxR = np.empty((heads.n_seeds, *measured))
    for i, j in np.ndindex(*measured):
        head_outputs = heads.maps_and_outputs(beta_B[i], rho_R[j])
        cosine_SxBxR[:, i, j] = [one_head.mean_cosine(out_TxN) for _, out_TxN in head_outputs]
    lengths = {"limit": None, "exact": heads.length}
    predicted = theory(beta_B, rho_R, **lengths)

    def rms(name, cosine_BxR):
        # Without rho = 0, where the cosines of random tokens are noise.
        return root_mean_square((predicted[name] - cosine_BxR)[:, 1:])

    metrics = {
        f"{name}_rms_error": jackknife(root_mean_square, (cosine_SxBxR - theory_BxR)[..., 1:])
        for name, theory_BxR in predicted.items()
    }
    line_rho = np.linspace(0, 1, 400)[:-1]
    arrays = {
        "beta": beta,
        "rho": rho,
        **theory(beta, rho, **lengths),
        **{name: error.mean for name, error in metrics.items()},
        "measured": cosine_SxBxR,
        "measured_beta": beta_B,
        "measured_rho": rho_R,
        "edge_rho": line_rho,
        "edge_beta": np.asarray(rem.critical_beta(line_rho)),
    }
    errors_S = [rms("exact", cosine_BxR) for cosine_BxR in cosine_SxBxR]
    metrics["exact_rms_error_of_one_network"] = over_seeds(errors_S)
    # Compares the beta at which the cosine of measured heads falls with the beta of the limit.
    limit_cosine = theory(beta, rho_R, limit=None)["limit"]
    for j, value in enumerate(rho_R[1:], 1):
        expected = beta_of_fall(beta, limit_cosine[:, j], value)
        observed = [beta_of_fall(beta_B, cosine_B, value) for cosine_B in cosine_SxBxR[:, :, j]]
        if np.isfinite([expected, *observed]).all():
            ratio_S = np.array(observed) / expected
            metrics[f"observed_over_predicted/rho={value:.2f}"] = over_seeds(ratio_S)
    finite = theory(
        beta_B,
        rho_R,
        limit_rms_error_of_theory=heads.length,
        limit_rms_error_of_theory_at_1e8=LARGE_T,
    )
    baselines = {name: rms("limit", cosine) for name, cosine in finite.items()}
    return Outcome(arrays, metrics, baselines)


def beta_of_fall(beta: np.ndarray, cosine: np.ndarray, rho: float) -> float:
    """Returns the beta at which the cosine has fallen a tenth of the way from 1 to rho, or nan."""
    level = 1 - 0.1 * (1 - rho)
    below = np.flatnonzero(cosine < level)
    if not len(below) or below[0] == 0:
        return float("nan")
    after = below[0]
    return float(np.interp(-level, -cosine[after - 1 : after + 1], beta[after - 1 : after + 1]))


def draw_phase(arrays, length: int, width: int, beta_max: float):
    figure, axes = plots.row(3, (plots.PAGE, 2.0), sharey=True)
    theory_extent = (0, beta_max, 0, 1)
    measured_extent = _edges(arrays["measured_beta"], arrays["measured_rho"])
    panels = (
        (arrays["limit"], "the paper's limit, $T\\to\\infty$", theory_extent),
        (arrays["exact"], f"exact theory, $T={length}$", theory_extent),
        (arrays["measured"].mean(0), f"measured, $T={length}$, $d={width}$", measured_extent),
    )
    for axis, (values, title, extent) in zip(axes, panels, strict=True):
        image = axis.imshow(values.T, extent=extent, vmin=0, vmax=1, **MAP)
        line = {"color": COLOURS[1], "lw": 1.6, "label": r"$\beta_c(\rho)$"}
        axis.plot(arrays["edge_beta"], arrays["edge_rho"], **line)
        axis.set(xlabel=r"score scale $\beta$", title=title, xlim=(0, beta_max), ylim=(0, 1))
    # The row rho = 0 is not judged: cosines of random tokens fluctuate there by d^-1/2.
    top = (arrays["measured_rho"][1] - arrays["measured_rho"][0]) / 2
    axes[2].fill_between(
        measured_extent[:2], 0, top, facecolor="none", edgecolor="white", hatch="///", lw=0
    )
    axes[0].set_ylabel(r"cosine before attention, $\rho$")
    plots.add_colour_bar(figure, image, axes, r"cosine after, $SA(\rho)$")
    plots.add_finding(
        figure,
        "Low $\\beta$ makes tokens alike, high $\\beta$ keeps them apart; root mean square error "
        rf"at $\rho>0$: limit {arrays['limit_rms_error']:.3f}, "
        f"exact {arrays['exact_rms_error']:.3f}",
        r"Hatched: at $\rho=0$ measured cosines fluctuate by $d^{-1/2}$ and are not judged.",
        axes[0],
    )
    return figure


def measure_moments(rhos: tuple, beta_max: float, points: int, heads: Heads) -> Outcome:
    """Measures Figure B.2: SA(q) and SA(p) against beta, at q = 1."""
    beta, beta_B = np.linspace(0, beta_max, 121), np.linspace(0.2, beta_max, points)
    outcome = Outcome({"beta": beta, "measured_beta": beta_B})
    outcome.arrays["critical_beta"] = np.array([rem.critical_beta(rho) for rho in rhos])
    for rho in rhos:
        moments_SxBx2 = np.empty((heads.n_seeds, len(beta_B), 2))
        for j, b in enumerate(beta_B):
            head_outputs = heads.maps_and_outputs(b, rho)
            moments_SxBx2[:, j] = [one_head.second_moments(out_TxN) for _, out_TxN in head_outputs]
        for i, (name, overlap) in enumerate((("q", rem.self_overlap), ("p", rem.cross_overlap))):
            outcome.arrays[f"{name}_measured_rho_{rho:g}"] = moments_SxBx2[..., i]
            for theory, length in (("exact", heads.length), ("limit", None)):
                line, line_B = (
                    (1 - rho) * np.asarray(overlap(x, rho, length)) + rho for x in (beta, beta_B)
                )
                outcome.arrays[f"{name}_{theory}_rho_{rho:g}"] = line
                outcome.metrics[f"{theory}_rms_error_{name}_rho_{rho:g}"] = jackknife(
                    root_mean_square, moments_SxBx2[..., i] - line_B
                )
    ones, rho_R = np.ones(len(rhos)), np.asarray(rhos)
    for suffix, length in (("", heads.length), (", T=1e8", LARGE_T)):
        share_R = rem.cross_overlap(ones, rho_R, length) / rem.self_overlap(ones, rho_R, length)
        for rho, share in zip(rhos, np.asarray(share_R), strict=True):
            outcome.metrics[f"Y_p/Y_q/rho={rho:g}{suffix}"] = exact(float(share))
    return outcome


def draw_moments(arrays, rhos: tuple, length: int):
    figure, axes = plots.row(len(rhos), (plots.PAGE, 2.0), sharey=True)
    beta, beta_B = arrays["beta"], arrays["measured_beta"]
    for axis, rho, critical in zip(axes, rhos, arrays["critical_beta"], strict=True):
        for colour, name in zip(COLOURS, ("q", "p")):
            line, limit, moment_SxB = (
                arrays[f"{name}_{kind}_rho_{rho:g}"] for kind in ("exact", "limit", "measured")
            )
            label = f"$SA({name})$"
            axis.plot(beta, line, color=colour, lw=1.4, label=f"{label}, $T={length}$")
            axis.plot(beta, limit, color=colour, lw=1.2, ls="--", label=f"{label}, limit")
            style = {"color": colour, "fmt": "o", "label": f"{label}, heads"}
            plots.means(axis, beta_B, moment_SxB, **style)
        axis.axvline(critical, color="0.6", lw=0.8)
        axis.set(xlabel=r"score scale $\beta$", title=rf"$\rho={rho:g}$", ylim=(0, 1.03))
    axes[0].set_ylabel(r"second moment after attention")
    plots.add_finding(
        figure,
        "$SA(q)$ leaves $\\rho$ well before $\\beta_c$ (grey), and $SA(p)>\\rho$: at finite $T$ "
        "neither is the limit's",
        "$q=1$. Bars: standard errors over heads.",
        axes[0],
        columns=3,
    )
    return figure


def measure_spectrum(betas: tuple, heads: Heads) -> Outcome:
    """Measures Figure C.1: the radius of the disc of eigenvalues of the attention matrix.

    The measured radius is the modulus below which all but 2 % of the bulk lie, over the same
    quantile of a uniform disc. In the condensed phase single eigenvalues lie outside the bulk.
    """
    outcome = Outcome()
    for beta in betas:
        values_SxT = np.stack([np.linalg.eigvals(A) for A, _ in heads.maps_and_outputs(beta, 0.0)])
        bulk_SxT = np.sort(np.abs(values_SxT), 1)[:, :-1]  # the largest eigenvalue is 1
        radius_S = np.quantile(bulk_SxT, BULK, axis=1) / EDGE
        predicted = float(rem.spectrum_radius(beta, 0.0, heads.length))
        outcome.scalar(f"radius_beta_{beta:g}", radius_S, theory=predicted)
        outcome.arrays[f"eigenvalues_beta_{beta:g}"] = values_SxT[0]
    return outcome


def draw_spectrum(arrays, betas: tuple, length: int, width: int):
    figure, axes = plots.row(len(betas), (plots.PAGE, 1.6))
    angle = np.linspace(0, 2 * np.pi, 200)
    for axis, beta in zip(axes, betas, strict=True):
        values_T = arrays[f"eigenvalues_beta_{beta:g}"]
        measured, theory = (arrays[f"{prefix}radius_beta_{beta:g}"] for prefix in ("", "theory_"))
        axis.plot(np.real(values_T), np.imag(values_T), "o", ms=1, alpha=0.5, color=COLOURS[0])
        axis.plot(theory * np.cos(angle), theory * np.sin(angle), color=COLOURS[1], lw=1)
        span = 1.6 * max(measured.mean(), theory)
        axis.set(aspect="equal", xlim=(-span, span), ylim=(-span, span), xlabel="real part")
        axis.set_title(rf"$\beta={beta:g}$" + f"\n{measured.mean():.3f} ({theory:.3f})")
    axes[0].set_ylabel("imaginary part")
    plots.add_finding(
        figure,
        "The disc of eigenvalues grows with $\\beta$; above each panel its radius and, in "
        "brackets, the theory's (circle)",
        f"One random head, $T={length}$, $d={width}$; each panel has the scale of its disc.",
    )
    return figure


def _edges(*axes: np.ndarray) -> list[float]:
    """Returns the extent of an image whose pixels have these centres."""
    edges = []
    for centres in axes:
        half = (centres[1] - centres[0]) / 2
        edges += [centres[0] - half, centres[-1] + half]
    return edges


MAPS = Figure(measure=measure_maps, draw=draw_maps)
PHASE = Figure(measure=measure_phase, draw=draw_phase)
MOMENTS = Figure(measure=measure_moments, draw=draw_moments)
SPECTRUM = Figure(measure=measure_spectrum, draw=draw_spectrum)
