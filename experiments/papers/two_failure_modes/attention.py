"""One attention layer at initialisation (arXiv 2505.24333): figures 1a,b, 3, B.2 and C.1.

Theory is `exact` (theory.rem at T tokens, wide limit) beside the paper's `limit` (T -> infinity).
"""

import numpy as np

from experiments.papers import plots
from experiments.papers.outcome import Outcome, exact
from experiments.papers.plots import COLOURS
from experiments.papers.two_failure_modes import one_head
from experiments.papers.two_failure_modes.one_head import GROWN, Heads
from jaxformer.training.metrics import over_seeds
from theory import rem, signal
from theory.phase_map import attention_cosine

EDGE = 0.98**0.5  # the 98 % quantile of the moduli in a uniform disc, over its radius
MAP = {"origin": "lower", "aspect": "auto", "cmap": "cividis"}


def measure_maps(betas: tuple, heads: Heads) -> Outcome:
    """Figure 1a,b: attention maps of one head below and above beta_c(0) = sqrt(2)."""
    arrays, metrics, baselines = {}, {}, {}
    for beta in betas:
        A_SxTxT = np.stack([A_TxT for A_TxT, _ in heads.maps_and_outputs(beta, 0.0)])
        fractions_S = [one_head.entropy(A) / np.log(heads.length) for A in A_SxTxT]
        predicted = float(rem.attention_entropy(beta, 0.0, heads.length)) / np.log(heads.length)
        name = f"entropy_fraction_beta_{beta:g}"
        metrics[name], baselines[f"exact_{name}"] = over_seeds(fractions_S), predicted
        baselines[f"limit_{name}"] = max(0.0, 1 - beta**2 / 2)
        at_1e8 = float(rem.attention_entropy(beta, 0.0, GROWN)) / np.log(GROWN)
        baselines[f"theory_{name}_at_1e8"] = at_1e8
        arrays |= {f"weights_beta_{beta:g}": A_SxTxT[0], name: fractions_S}
        arrays[f"exact_{name}"] = predicted
    metrics["bert_beta"] = over_seeds([one_head.beta_of_bert(key) for key in heads.keys])
    std, width, d_head, length = one_head.BERT
    baselines["exact_bert_beta"] = float(signal.effective_beta(std, width, length))
    baselines["paper_bert_beta"] = float(signal.effective_beta_paper(std, d_head, length))
    return Outcome(arrays, metrics, baselines)


def draw_maps(arrays, betas: tuple):
    figure, axes = plots.row(len(betas), (plots.PAGE, 2.7))
    words = []
    for axis, beta in zip(axes, betas, strict=True):
        shown = np.log10(np.maximum(arrays[f"weights_beta_{beta:g}"], 1e-4))
        image = axis.imshow(shown)  # a scale each: the left map is nearly flat
        plots.bar(figure, image, axis, r"$\log_{10} A_{ts}$", shrink=0.8)
        kind = "sees everything" if beta < 2**0.5 else "looks at few tokens"
        axis.set(xlabel="source token s", ylabel="token t")
        name = f"entropy_fraction_beta_{beta:g}"
        found = f"{arrays[name].mean():.3f} (theory {arrays[f'exact_{name}']:.3f})"
        plots.titled(axis, rf"$\beta={beta:g}$: entropy / $\ln T$ {found}")
        words.append(rf"at $\beta={beta:g}$ a row {kind}")
    found, beware = "; ".join(words), "One random head; each map has a colour scale of its own."
    plots.headed(figure, found[0].upper() + found[1:], beware)
    return figure


def measure_phase(beta_max: float, points: int, measured: tuple, heads: Heads) -> Outcome:
    """Figure 3: the cosine of two tokens after attention over (beta, rho), theory and measured."""

    def theory(beta, rho, **sizes):
        return {n: attention_cosine(beta[:, None], rho[None], T) for n, T in sizes.items()}

    beta, rho = np.linspace(0, beta_max, points), np.linspace(0, 1, points)
    some_beta, some_rho = np.linspace(0, beta_max, measured[0]), np.linspace(0, 0.95, measured[1])
    seen_SxBxR = np.empty((heads.n_seeds, *measured))
    for i, j in np.ndindex(*measured):
        found = heads.maps_and_outputs(some_beta[i], some_rho[j])
        seen_SxBxR[:, i, j] = [one_head.mean_cosine(out_TxN) for _, out_TxN in found]
    sizes = {"limit": None, "exact": heads.length}
    predicted = theory(some_beta, some_rho, **sizes)

    def rms(name, seen):  # without rho = 0, where the cosines of random tokens are noise
        return float(np.sqrt(np.mean((predicted[name] - seen)[:, 1:] ** 2)))

    gaps = {f"{name}_rms_error": rms(name, seen_SxBxR.mean(0)) for name in predicted}
    edge = np.linspace(0, 1, 400)[:-1]
    arrays = {
        "beta": beta,
        "rho": rho,
        **theory(beta, rho, **sizes),
        **gaps,
        "measured": seen_SxBxR,
    }
    arrays |= {"measured_beta": some_beta, "measured_rho": some_rho}
    arrays |= {"edge_rho": edge, "edge_beta": np.asarray(rem.critical_beta(edge))}
    metrics = {"exact_rms_error_of_one_network": over_seeds([rms("exact", x) for x in seen_SxBxR])}
    far = theory(
        *(some_beta, some_rho),
        limit_rms_error_of_theory=heads.length,
        limit_rms_error_of_theory_at_1e8=GROWN,
    )
    fine = theory(beta, some_rho, limit=None)["limit"]
    for j, one in enumerate(some_rho[1:], 1):
        expected = fall(beta, fine[:, j], one)
        observed = [fall(some_beta, seen_B, one) for seen_B in seen_SxBxR[:, :, j]]
        if np.isfinite([expected, *observed]).all():
            metrics[f"observed_over_predicted/rho={one:.2f}"] = over_seeds(
                np.array(observed) / expected
            )
    return Outcome(arrays, metrics, gaps | {name: rms("limit", of) for name, of in far.items()})


def fall(beta: np.ndarray, cosine: np.ndarray, rho: float) -> float:
    """Where the cosine has come a tenth of the way from 1 down to rho; nan if beta ends before."""
    level = 1 - 0.1 * (1 - rho)
    below = np.flatnonzero(cosine < level)
    if not len(below) or below[0] == 0:
        return float("nan")
    after = below[0]
    return float(np.interp(-level, -cosine[after - 1 : after + 1], beta[after - 1 : after + 1]))


def draw_phase(arrays, length: int, width: int, beta_max: float):
    figure, axes = plots.row(3, (plots.PAGE, 2.0), sharey=True)
    whole, of_dots = (0, beta_max, 0, 1), _edges(arrays["measured_beta"], arrays["measured_rho"])
    panels = (
        (arrays["limit"], "the paper's limit, $T\\to\\infty$", whole),
        (arrays["exact"], f"exact theory, $T={length}$", whole),
        (arrays["measured"].mean(0), f"measured, $T={length}$, $d={width}$", of_dots),
    )
    for axis, (values, title, extent) in zip(axes, panels, strict=True):
        image = axis.imshow(values.T, extent=extent, vmin=0, vmax=1, **MAP)
        line = {"color": COLOURS[1], "lw": 1.6, "label": r"$\beta_c(\rho)$"}
        axis.plot(arrays["edge_beta"], arrays["edge_rho"], **line)
        axis.set(xlabel=r"score scale $\beta$", title=title, xlim=(0, beta_max), ylim=(0, 1))
    # Cosines of random tokens fluctuate about rho = 0 by d^-1/2: that row is not judged.
    bottom = _edges(arrays["measured_beta"], arrays["measured_rho"])
    row = (arrays["measured_rho"][1] - arrays["measured_rho"][0]) / 2
    axes[2].fill_between(bottom[:2], 0, row, facecolor="none", edgecolor="white", hatch="///", lw=0)
    axes[0].set_ylabel(r"cosine before attention, $\rho$")
    plots.bar(figure, image, axes, r"cosine after, $SA(\rho)$")
    plots.headed(
        figure,
        "Low $\\beta$ makes tokens alike, high $\\beta$ keeps them apart; root mean square error "
        rf"at $\rho>0$: limit {arrays['limit_rms_error']:.3f}, "
        f"exact {arrays['exact_rms_error']:.3f}",
        r"Hatched: at $\rho=0$ measured cosines fluctuate by $d^{-1/2}$ and are not judged.",
        axes[0],
    )
    return figure


def measure_moments(rhos: tuple, beta_max: float, points: int, heads: Heads) -> Outcome:
    """Figure B.2: SA(q) and SA(p) against beta, q = 1: theory at T, the limit, measured heads."""
    beta, some = np.linspace(0, beta_max, 121), np.linspace(0.2, beta_max, points)
    metrics, baselines, arrays = {}, {}, {"beta": beta, "measured_beta": some}
    arrays["critical_beta"] = np.array([rem.critical_beta(rho) for rho in rhos])
    for rho in rhos:
        seen_SxBx2 = np.empty((heads.n_seeds, len(some), 2))
        for j, b in enumerate(some):
            found = heads.maps_and_outputs(b, rho)
            seen_SxBx2[:, j] = [one_head.second_moments(out_TxN) for _, out_TxN in found]
        for i, (name, function) in enumerate((("q", rem.self_overlap), ("p", rem.cross_overlap))):
            line, at = (
                (1 - rho) * np.asarray(function(x, rho, heads.length)) + rho for x in (beta, some)
            )
            limit, far = ((1 - rho) * np.asarray(function(x, rho)) + rho for x in (beta, some))
            mean = seen_SxBx2[..., i].mean(0)
            error, of_limit = (np.sqrt(np.mean((mean - theory) ** 2)) for theory in (at, far))
            metrics[f"exact_rms_error_{name}_rho_{rho:g}"] = exact(error)
            baselines[f"limit_rms_error_{name}_rho_{rho:g}"] = float(of_limit)
            arrays |= {f"{name}_exact_rho_{rho:g}": line, f"{name}_limit_rho_{rho:g}": limit}
            arrays[f"{name}_measured_rho_{rho:g}"] = seen_SxBx2[..., i]
    ones, several = np.ones(len(rhos)), np.asarray(rhos)
    for words, length in (("", heads.length), (", T=1e8", GROWN)):
        shares = rem.cross_overlap(ones, several, length) / rem.self_overlap(ones, several, length)
        for rho, share in zip(rhos, np.asarray(shares), strict=True):
            metrics[f"Y_p/Y_q/rho={rho:g}{words}"] = exact(float(share))
    return Outcome(arrays, metrics, baselines)


def draw_moments(arrays, rhos: tuple, length: int):
    figure, axes = plots.row(len(rhos), (plots.PAGE, 2.0), sharey=True)
    beta, some = arrays["beta"], arrays["measured_beta"]
    for axis, rho, critical in zip(axes, rhos, arrays["critical_beta"], strict=True):
        for colour, name in zip(COLOURS, ("q", "p")):
            line, limit, seen_SxB = (
                arrays[f"{name}_{what}_rho_{rho:g}"] for what in ("exact", "limit", "measured")
            )
            label = f"$SA({name})$"
            axis.plot(beta, line, color=colour, lw=1.4, label=f"{label}, $T={length}$")
            axis.plot(beta, limit, color=colour, lw=1.2, ls="--", label=f"{label}, limit")
            heads = f"{label}, heads"
            plots.means(axis, some, seen_SxB, color=colour, fmt="o", label=heads)
        axis.axvline(critical, color="0.6", lw=0.8)
        axis.set(xlabel=r"score scale $\beta$", title=rf"$\rho={rho:g}$", ylim=(0, 1.03))
    axes[0].set_ylabel(r"second moment after attention")
    plots.headed(
        figure,
        "$SA(q)$ leaves $\\rho$ well before $\\beta_c$ (grey), and $SA(p)>\\rho$: at finite $T$ "
        "neither is the limit's",
        "$q=1$. Bars: standard errors over heads.",
        axes[0],
        columns=3,
    )
    return figure


def measure_spectrum(betas: tuple, heads: Heads) -> Outcome:
    """Figure C.1: eigenvalues of the attention matrix, and the theory's radius of their bulk.

    Measured is the modulus below which all but 2 % of the bulk lie: in the condensed phase single
    eigenvalues lie outside. Of a uniform disc it is .99 of the radius.
    """
    arrays, metrics, baselines = {}, {}, {}
    for beta in betas:
        values_SxT = np.stack([np.linalg.eigvals(A) for A, _ in heads.maps_and_outputs(beta, 0.0)])
        bulk_SxT = np.sort(np.abs(values_SxT), 1)[:, :-1]
        edge_S = np.quantile(bulk_SxT, 0.98, axis=1) / EDGE
        radius = float(rem.spectrum_radius(beta, 0.0, heads.length))
        name = f"radius_beta_{beta:g}"
        metrics[name], baselines[f"theory_{name}"] = over_seeds(edge_S), radius
        arrays |= {f"eigenvalues_beta_{beta:g}": values_SxT[0], name: edge_S}
        arrays[f"theory_{name}"] = radius
    return Outcome(arrays, metrics, baselines)


def draw_spectrum(arrays, betas: tuple, length: int, width: int):
    figure, axes = plots.row(len(betas), (plots.PAGE, 1.6))
    angle = np.linspace(0, 2 * np.pi, 200)
    for axis, beta in zip(axes, betas, strict=True):
        values_T = arrays[f"eigenvalues_beta_{beta:g}"]
        measured, theory = (arrays[f"{who}radius_beta_{beta:g}"] for who in ("", "theory_"))
        axis.plot(np.real(values_T), np.imag(values_T), "o", ms=1, alpha=0.5, color=COLOURS[0])
        axis.plot(theory * np.cos(angle), theory * np.sin(angle), color=COLOURS[1], lw=1)
        span = 1.6 * max(measured.mean(), theory)
        axis.set(aspect="equal", xlim=(-span, span), ylim=(-span, span), xlabel="real part")
        axis.set_title(rf"$\beta={beta:g}$" + f"\n{measured.mean():.3f} ({theory:.3f})")
    axes[0].set_ylabel("imaginary part")
    plots.headed(
        figure,
        "The disc of eigenvalues grows with $\\beta$; above each panel its radius and, in "
        "brackets, the theory's (circle)",
        f"One random head, $T={length}$, $d={width}$; each panel is enlarged to its own disc.",
    )
    return figure


def _edges(*axes: np.ndarray) -> list[float]:
    """The extent of an image whose pixels have these centres."""
    return [edge for c in axes for edge in (c[0] - (c[1] - c[0]) / 2, c[-1] + (c[1] - c[0]) / 2)]
