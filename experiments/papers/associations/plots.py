"""The figures of a recall run, from its arrays: training, one sequence's attention, memories.

`settings` are those of `config.recall`.
"""

import numpy as np

from experiments.papers.associations.numbers import LAST
from experiments.shared import plots

BLUE, RED, GREEN, *_ = plots.COLOURS
ROLES = (("other tokens", "0.7"), ("ybar, after a trigger", BLUE), ("noise, after a trigger", RED))
TITLES = {
    "previous_token": "layer 1 looks one back:\n$p_i^T W_K^1 p_j$",
    "induction": "the last layer matches the trigger:\n$E_i^T W_K W_O^1 W_V^1 E_j$",
    "values": "the last layer copies:\n$U_j^T W_O W_V E_i$",
    "feed_forward": "the last F stores:\n$U_j^T F(E_i)$",
}


def training(settings, alpha: float, arrays):
    """Figures 3, 8, 10 to 13, 19 and 20: answers, margin and attention along training, and cuts."""
    figure, axes = plots.grid(2, 3, (13, 7))
    curves = {n.removeprefix("probes/"): v for n, v in arrays.items() if n.startswith("probes/")}
    steps, kept = arrays["steps"], arrays["kept"]
    panels = (("p_correct", "p(correct)"), ("p_noise", "p(noise)"), ("loss", "loss (nats)"))
    styles = _versions(curves)
    for axis, (name, label) in zip(axes[0], panels, strict=True):
        for (ending, who), colour in zip(styles.items(), plots.cycle(len(styles)), strict=True):
            _line(axis, steps, curves[name + ending][:, kept], colour, who)
        scale = {"yscale": "log"} if name == "loss" else {"ylim": (-0.02, 1.02)}
        axis.set(xlabel="training step", ylabel=f"{label} on clean data", **scale)
    _legend_above(axes[0, 0], "cut out: " if len(styles) > 1 else "")
    margin, attention, cut = axes[1]
    if "margin_f2" in curves:
        _line(margin, steps, curves["margin_f2"][:, kept], GREEN, "")
        margin.axhline(0, color="0.5", lw=1)
        margin.set(xlabel="training step", ylabel="margin of the noise in F2 for q alone")
    else:
        margin.axis("off")
    for name, colour, who in (
        ("attention_target", BLUE, "last layer: on ybar"),
        ("attention_noise", RED, "last layer: on the noise"),
        ("attention_previous", "0.5", "layer 1: on the previous token"),
        ("previous_token", "black", "layer 1: positions whose key finds it"),
    ):
        if name in curves:
            _line(attention, steps, curves[name][:, kept], colour, who)
    attention.set(xlabel="training step", ylabel="attention, or share", ylim=(-0.02, 1.02))
    _legend_above(attention)
    _cuts(cut, settings.truncate, settings.fractions, arrays)
    if begin := settings.pretrain_steps:
        for axis in (*axes[0], margin, attention):
            axis.axvline(begin, color="0.5", lw=1, ls=":")
        axes[0, 1].annotate("noisy from here", (begin, 0.97), fontsize=8, ha="right", va="top")
    figure.suptitle(_finding(alpha, curves, kept, styles))
    words = f"a line is the mean of {kept.size} seeds, its band goes from the lowest to the highest"
    figure.supxlabel(words if kept.size > 1 else "one seed", fontsize=8)
    return figure


def _legend_above(axis, before: str = "") -> None:
    """The names of the curves above their panel, where they hide none."""
    handles, labels = axis.get_legend_handles_labels()
    where = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2}
    axis.legend(handles, [before + x for x in labels], ncols=2, fontsize=7, frameon=False, **where)


def _cuts(axis, patterns, fractions, arrays) -> None:
    """Both probabilities at the end, with the matrices of each pattern cut."""
    places = range(len(fractions))
    for pattern, marker in zip(patterns, "osv^Dx*", strict=False):
        for name, colour, what in (("p_correct", BLUE, "correct"), ("p_noise", RED, "noise")):
            values_MxF = arrays[f"truncated/{pattern}/{name}"][arrays["kept"]]
            look = {"marker": marker, "color": colour, "label": f"{what}, {pattern} cut"}
            plots.means(axis, places, values_MxF, capsize=2, **look)
    axis.set_xticks(places, [f"{f:g}" for f in fractions])
    axis.set(xlabel="fraction of the rank kept", ylabel="probability, at the end")
    axis.set_ylim(-0.02, 1.02)
    _legend_above(axis)


def attention(settings, arrays):
    """Figure 4: what the last layer's last trigger looks at in one noisy sequence."""
    ends = [step for step in arrays["attention/steps"] if step]
    weights = arrays["attention/weights"][[*arrays["attention/steps"]].index(ends[0]) :]
    figure, axes = plots.grid(len(ends), 1, (9, 2.2 * len(ends) + 0.5))
    follows_T, query = arrays["attention/follows"], int(arrays["attention/query"])
    follows_T = np.where(np.arange(len(follows_T)) <= query, follows_T, 0)
    words = []
    for axis, step, row_MxT in zip(axes[:, 0], ends, weights, strict=True):
        row_T = row_MxT[arrays["kept"]].mean(0)
        for role, (label, colour) in enumerate(ROLES):
            places = np.flatnonzero((follows_T == role) & (np.arange(len(row_T)) <= query))
            if len(places):
                axis.bar(places, row_T[places], color=colour, label=label)
        begin, what = settings.pretrain_steps, "trained on noisy data"
        if begin:
            what = "trained on clean data" if step == begin else "then on noisy data"
        on = [row_T[follows_T == role].sum() for role in (1, 2)]
        words.append(f"{what}: {on[0]:.2f} on ybar, {on[1]:.2f} on the noise")
        axis.set(xlabel="position in the sequence", ylabel="attention", title=words[-1])
        axis.title.set_fontsize(9)
    axes[0, 0].legend()
    figure.suptitle(f"What the trigger at position {query} looks at, mean of the seeds")
    return figure


def memories(task, arrays):
    """Figures 7 and 9: the heat maps of the first member; a bright diagonal is a memory."""
    shown = [name for name in TITLES if f"memories/{name}" in arrays]
    figure, axes = plots.row(len(shown), (3.4 * len(shown), 3.8))
    for axis, name in zip(axes, shown, strict=True):
        values = arrays[f"memories/{name}"]
        limit = np.abs(values).max()
        image = axis.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit)
        axis.set_title(TITLES[name], fontsize=9)
        figure.colorbar(image, ax=axis, shrink=0.7)
        triggers, q = [*task.trigger_tokens], ["q"] * len(task.trigger_tokens)
        if name == "induction":
            axis.set_xticks(triggers, q, fontsize=7)
        elif name in ("values", "feed_forward"):
            axis.set_xticks([task.noise_token], ["noise"], fontsize=7)
        if name != "previous_token":
            axis.set_yticks(triggers, q, fontsize=7)
    return figure


def _versions(curves) -> dict[str, str]:
    """{ending of a curve's name: what the legend says}: the whole model, the last F, F1, others."""
    endings = [n.removeprefix("p_noise") for n in curves if n.startswith("p_noise")]
    dropped = sorted((e for e in endings if "_without_f" in e), reverse=True)
    words = {"": "nothing"} | {e: e.removeprefix("_without_").upper() for e in dropped[:2]}
    if len(dropped) > 2:  # of the deep models of synthetic IOI the last F is the paper's
        words.pop(dropped[1])
    return words | {e: f"to {e[4:]} of the rank" for e in endings if e.startswith("_at_")}


def _finding(alpha: float, curves, kept, styles) -> str:
    end = {name: values[-LAST:, kept].mean() for name, values in curves.items()}
    words = []
    for ending, who in styles.items():
        cut = f"cut {who}" if ending.startswith("_at_") else f"without {who}"
        correct, noise = end["p_correct" + ending], end["p_noise" + ending]
        words.append(f"{cut if ending else 'whole'} {correct:.2f} and {noise:.2f}")
    return (
        f"Trained with noise {alpha:g}, asked without: probability of the answer and of the noise "
        f"at the end\n{', '.join(words)}"
    )


def _line(axis, steps, values_SxM, colour: str, label: str) -> None:
    """The mean over members within their range."""
    low, middle, high = values_SxM.min(1), values_SxM.mean(1), values_SxM.max(1)
    plots.band(axis, steps, low, middle, high, colour, label)
