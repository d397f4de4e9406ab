"""The figures of a recall run, from its arrays: training, layers cut out, attention, memories.

`settings` are those of `config.recall`. S is the axis of probed steps, M of members, T of tokens, F
of fractions of a rank. Layers have the paper's numbers: layer 1 is block_0.
"""

import numpy as np

from experiments.papers import plots
from experiments.papers.associations.recall_summary import LAST_PROBES

BLUE, RED, *_, BLACK = plots.COLOURS
# Labels and colours of the tokens with code 0, 1 and 2 in the array attention/follows.
ROLES = (
    ("other tokens", "0.7"),
    ("the answer, after a trigger", BLUE),
    ("noise, after a trigger", RED),
)
TITLES = {
    "previous_token": "layer 1 looks one back:\n$p_i^T W_K^1 p_j$",
    "induction": "the last layer matches the trigger:\n$E_i^T W_K W_O^1 W_V^1 E_j$",
    "values": "the last layer copies:\n$U_j^T W_O W_V E_i$",
    "feed_forward": "the last feed-forward layer F stores:\n$U_j^T F(E_i)$",
}
AXES = {  # labels of rows and columns
    "previous_token": ("position", "position"),
    "induction": ("token", "token"),
    "values": ("input token", "output token"),
    "feed_forward": ("input token", "output token"),
}


def training(settings, alpha: float, arrays, title: str = "", caption: str = ""):
    """Draws Figures 3, 8, 10 to 13, 19 and 20.

    The panels are probabilities, margin and attention during training, and the effect of cuts.

    Args:
      settings: config.recall.
      alpha: The share of noise in training.
      arrays: The arrays of the run.
      title: Replaces the sentence about the end of the curves.
      caption: A sentence that is added to the caption.
    """
    figure, axes = plots.grid(2, 3, (plots.PAGE, 4.1))
    curves = {n.removeprefix("probes/"): v for n, v in arrays.items() if n.startswith("probes/")}
    steps, averaged = arrays["steps"], arrays["kept"]
    panels = (("p_correct", "p(answer)"), ("p_noise", "p(noise)"), ("loss", "loss (nats)"))
    versions = _versions(curves)
    for axis, (name, label) in zip(axes[0], panels, strict=True):
        for (ending, version), colour in zip(versions.items(), plots.cycle(len(versions))):
            _line(axis, steps, curves[name + ending][:, averaged], colour, version)
        scale = {"yscale": "log"} if name == "loss" else {"ylim": (-0.02, 1.02)}
        axis.set(xlabel="training step", ylabel=f"{label} on clean data", **scale)
    margin, attention, cut = axes[1]
    if "margin_f2" in curves:
        _line(margin, steps, curves["margin_f2"][:, averaged], BLACK, "")
        margin.axhline(0, color="0.5", lw=0.8)
        margin.set(xlabel="training step", ylabel="logit of noise over answer")
        plots.label_panel(margin, "output of the last feed-forward layer for the trigger q alone")
    else:
        margin.axis("off")
    for name, colour, label in (
        ("attention_target", BLUE, "last layer: on the answer"),
        ("attention_noise", RED, "last layer: on the noise"),
        ("attention_previous", "0.5", "block 0: one token back"),
        ("previous_token", "black", "block_0: share of keys that match"),
    ):
        if name in curves:
            _line(attention, steps, curves[name][:, averaged], colour, label)
    attention.set(xlabel="training step", ylabel="attention, or share", ylim=(-0.02, 1.02))
    plots.label_panel(attention)
    _cuts(cut, settings.truncate, settings.fractions, arrays)
    if begin := settings.pretrain_steps:
        for axis in (*axes[0], margin, attention):
            axis.axvline(begin, color="0.5", lw=0.8, ls=":")
    line_text = "A line is one seed."
    if averaged.size > 1:
        line_text = (
            f"Lines: means of {averaged.size} seeds; bands: from the lowest to the highest; bars: "
            "standard errors."
        )
    if begin:
        line_text += f" Clean data until step {begin} (dotted), then noise."
    title = title or _final_probabilities(alpha, curves, averaged, versions)
    plots.add_finding(figure, title, f"{line_text} {caption}".strip(), axes[0, 0])
    return figure


def layers(arrays):
    """Draws the probabilities of answer and noise, with and without feed-forward layers.

    The versions of a trained network are the full model, the model without its first feed-forward
    layer, and the model without its last one.

    Returns:
      The figure, or None for a model without feed-forward layers.
    """
    prefix = "probes/p_noise_without_f"
    layer_numbers = sorted(int(n.removeprefix(prefix)) for n in arrays if n.startswith(prefix))
    if not layer_numbers:
        return None
    versions = {
        "the whole\nmodel": "",
        "without the\nfirst feed-\nforward layer": f"_without_f{layer_numbers[0]}",
        "without the\nlast feed-\nforward layer": f"_without_f{layer_numbers[-1]}",
    }
    answer, noise = (
        np.stack([_final_values(arrays, name + version) for version in versions.values()], 1)
        for name in ("p_correct", "p_noise")
    )
    figure, axes = plots.row(1, (plots.COLUMN, 1.9))
    plots.bars(axes[0], {"the right token": answer, "the noise token": noise})
    axes[0].set_xticks(range(len(versions)), [*versions])
    axes[0].set(ylabel="probability", ylim=(0, 1.02))
    whole, *_, without_last = answer.mean(0)
    title = (
        f"Without the last feed-forward layer the right token has probability {without_last:.2f}, "
        f"not {whole:.2f}"
    )
    n = len(answer)
    seeds = f"Means of {n} seeds with standard errors." if n > 1 else "One seed."
    plots.add_finding(figure, title, seeds, axes[0])
    return figure


def _final_values(arrays, name: str) -> np.ndarray:
    """Returns the mean of the last probes of each averaged member, (M,)."""
    return arrays[f"probes/{name}"][-LAST_PROBES:, arrays["kept"]].mean(0)


def _cuts(axis, patterns, fractions, arrays) -> None:
    """Draws both probabilities after training against the kept share of the matrices' rank."""
    ticks = range(len(fractions))
    for pattern, marker in zip(patterns, "osv^Dx*", strict=False):
        for name, colour, token in (("p_correct", BLUE, "answer"), ("p_noise", RED, "noise")):
            values_MxF = arrays[f"truncated/{pattern}/{name}"][arrays["kept"]]
            label = f"{token}, {pattern}" if len(patterns) > 1 else token
            plots.means(axis, ticks, values_MxF, marker=marker, color=colour, label=label)
    axis.set_xticks(ticks, [f"{f:g}" for f in fractions])
    axis.set(xlabel="share of the rank that is kept", ylabel="probability after training")
    axis.set_ylim(-0.02, 1.02)
    plots.label_panel(axis, f"cut: {patterns[0]}" if len(patterns) == 1 else "cut:", columns=1)


def attention(settings, arrays):
    """Draws Figure 4: attention from the last trigger of one noisy sequence, in the last layer."""
    is_end = arrays["attention/steps"] > 0  # step 0 is not the end of a phase
    ends, weights = arrays["attention/steps"][is_end], arrays["attention/weights"][is_end]
    figure, axes = plots.grid(len(ends), 1, (plots.PAGE, 1.6 * len(ends)), sharex=True, sharey=True)
    follows_T, query = arrays["attention/follows"], int(arrays["attention/query"])
    visible_T = np.arange(len(follows_T)) <= query
    follows_T = np.where(visible_T, follows_T, 0)
    for axis, step, row_MxT in zip(axes[:, 0], ends, weights, strict=True):
        row_T = row_MxT[arrays["kept"]].mean(0)
        for role, (label, colour) in enumerate(ROLES):
            positions = np.flatnonzero((follows_T == role) & visible_T)
            if len(positions):
                axis.bar(positions, row_T[positions], color=colour, label=label)
        begin, phase = settings.pretrain_steps, "trained on noisy data"
        if begin:
            phase = "trained on clean data" if step == begin else "then on noisy data"
        on_answer, on_noise = (row_T[follows_T == role].sum() for role in (1, 2))
        axis.set(ylabel="attention")
        plots.set_title(
            axis, f"{phase}: {on_answer:.2f} on the answer, {on_noise:.2f} on the noise"
        )
    axes[-1, 0].set_xlabel("position in the sequence")
    seeds = f"Mean of {arrays['kept'].size} seeds" if arrays["kept"].size > 1 else "One seed"
    title = (
        f"The last trigger attends with {on_answer:.2f} to the answer, with {on_noise:.2f} to the "
        "noise"
    )
    plots.add_finding(figure, title, f"{seeds}, one sequence; the query is at {query}.", axes[0, 0])
    return figure


def memories(task, arrays):
    """Draws Figures 7 and 9: heat maps of one member, in which a bright diagonal is a memory."""
    shown = [name for name in TITLES if f"memories/{name}" in arrays]
    n_rows = -(-len(shown) // 2)
    figure, axes = plots.grid(n_rows, 2, (plots.PAGE, 2.7 * n_rows))
    for axis in axes.flat[len(shown) :]:
        axis.set_axis_off()
    for axis, name in zip(axes.flat, shown):
        values = arrays[f"memories/{name}"]
        limit = np.abs(values).max()
        image = axis.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit)
        axis.spines[:].set_visible(True)
        plots.label_panel(axis, TITLES[name])
        plots.add_colour_bar(figure, image, axis, "logit")
        axis.set(**dict(zip(("ylabel", "xlabel"), AXES[name], strict=True)))
        triggers = [*task.trigger_tokens]
        trigger_labels = ["q"] * len(triggers)
        if name == "induction":
            axis.set_xticks(triggers, trigger_labels)
        elif name in ("values", "feed_forward"):
            axis.set_xticks([task.noise_token], ["noise"])
        if name != "previous_token":
            axis.set_yticks(triggers, trigger_labels)
    # Older runs lack this array and show their first seed.
    seed = f"seed {arrays['memories/seed']}" if "memories/seed" in arrays else "the first seed"
    shares = _shares(arrays, task.noise_token)
    stored = [f"{memory} {share:.0%}" for memory, share in shares.items()]
    plots.add_finding(
        figure,
        f"Rows whose largest entry is the one that the paper expects: {', '.join(stored)}",
        f"One network ({seed}). Each map has its own scale; red is positive.",
    )
    return figure


def _shares(arrays, noise: int) -> dict[str, float]:
    """Returns the share of rows of each map whose largest entry is the one the paper expects.

    The expected entry is the previous position among the visible ones ("one token back"), the token
    itself ("copied"), or the noise token ("the noise").
    """
    shares = {}
    if "memories/previous_token" in arrays:
        best_T = [row[: i + 1].argmax() for i, row in enumerate(arrays["memories/previous_token"])]
        shares["one token back"] = np.mean([best == i - 1 for i, best in enumerate(best_T) if i])
    if "memories/values" in arrays:
        best = arrays["memories/values"].argmax(1)
        shares["copied"] = np.delete(best == np.arange(len(best)), noise).mean()
    if "memories/feed_forward" in arrays:
        shares["the noise"] = (arrays["memories/feed_forward"].argmax(1) == noise).mean()
    return shares


def _versions(curves) -> dict[str, str]:
    """Returns {ending of a curve's name: label}: full model, without last F, without F1, cuts."""
    endings = [n.removeprefix("p_noise") for n in curves if n.startswith("p_noise")]
    prefix = "_without_f"
    layers = [int(e.removeprefix(prefix)) for e in endings if e.startswith(prefix)]
    dropped = [f"{prefix}{layer}" for layer in sorted(layers, reverse=True)]
    labels = {"": "full model"}
    labels |= {e: f"without {e.removeprefix('_without_').upper()}" for e in dropped[:2]}
    if len(dropped) > 2:  # in the deep models of synthetic IOI the paper drops the last F only
        labels.pop(dropped[1])
    fractions = {e: e.removeprefix("_at_") for e in endings if e.startswith("_at_")}
    return labels | {e: f"F2 cut to {share} of the rank" for e, share in fractions.items()}


def _final_probabilities(alpha: float, curves, averaged, versions) -> str:
    end = {name: values[-LAST_PROBES:, averaged].mean() for name, values in curves.items()}
    probabilities = [
        f"{label} {end['p_correct' + ending]:.2f} and {end['p_noise' + ending]:.2f}"
        for ending, label in versions.items()
    ]
    return (
        f"Trained with noise {alpha:g}, tested without: the answer and the noise have probability "
        + ", ".join(probabilities)
    )


def _line(axis, steps, values_SxM, colour: str, label: str) -> None:
    """Draws the mean over members inside their range."""
    low, middle, high = values_SxM.min(1), values_SxM.mean(1), values_SxM.max(1)
    plots.band(axis, steps, low, middle, high, colour, label)
