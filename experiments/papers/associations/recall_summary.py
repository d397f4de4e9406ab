"""Summary numbers of a recall run's probes, for its claims: one number for each member.

S is the axis of probed steps, M that of members, F that of fractions of a matrix's rank.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

LAST_PROBES = 3  # probes whose mean is the reported number
LEARNED_PROBABILITY = 0.3  # a token is learned when its probability first reaches this


def averaged_members(members: Sequence[Mapping[str, Any]]) -> list[int]:
    """Returns the indices of the members at the chosen learning rate that did not diverge.

    If all of these diverged, the learning rate of the first other member replaces the chosen one.
    """
    converged = [i for i, member in enumerate(members) if member["diverged_at"] is None]
    chosen = [i for i in converged if members[i]["chosen"]]
    rate = members[(chosen or converged)[0]]["learning_rate"]
    return [i for i in converged if members[i]["learning_rate"] == rate]


def summary_of_training(steps_S, curves_SxM, settings) -> dict[str, np.ndarray]:
    """Returns the means of the last probes and the numbers that claims compare, (M,) each.

    Args:
      steps_S: The probed steps.
      curves_SxM: The probes by name.
      settings: config.recall.
    """
    numbers = {name: values[-LAST_PROBES:].mean(0) for name, values in curves_SxM.items()}
    on_answer, on_noise = numbers["attention_target"], numbers["attention_noise"]
    if on_noise.any():  # in this task the noise may follow a trigger
        numbers["attention_ratio"] = on_answer / np.maximum(on_noise, 1e-9)
    numbers["attention_difference"] = on_answer - on_noise
    prefix = "p_noise_without_"
    for part in [name.removeprefix(prefix) for name in numbers if name.startswith(prefix)]:
        correct, noise = numbers[f"p_correct_without_{part}"], numbers[prefix + part]
        numbers[f"p_correct_gain_without_{part}"] = correct - numbers["p_correct"]
        numbers[f"p_noise_drop_without_{part}"] = numbers["p_noise"] - noise
        clean = numbers[f"accuracy_clean_without_{part}"] - numbers["accuracy_clean"]
        numbers[f"accuracy_clean_gain_without_{part}"] = clean
    begin = settings.pretrain_steps
    numbers |= late_changes(steps_S, curves_SxM, begin)
    early_S = (steps_S > begin) & (steps_S <= begin + settings.early)
    if early_S.any():
        numbers["p_noise_peak"] = curves_SxM["p_noise"][early_S].max(0)
    if begin:  # the answer was learned on clean data, so that no order can be measured
        difference_SxM = curves_SxM["attention_target"] - curves_SxM["attention_noise"]
        numbers["attention_difference_clean"] = difference_SxM[steps_S == begin][0]
        return numbers
    learned = {n: _step_learned(steps_S, curves_SxM[n]) for n in ("p_correct", "p_noise")}
    numbers["noise_first"] = (learned["p_noise"] < learned["p_correct"]) * 1.0
    return numbers


def late_changes(steps_S, curves_SxM, begin: int) -> dict[str, np.ndarray]:
    """Returns the change of curves in the last quarter of training, (M,): 0 on a plateau.

    Returns {} if there are fewer than LAST_PROBES probes in this quarter or before it.

    Args:
      steps_S: The probed steps.
      curves_SxM: The probes by name.
      begin: The step at which noisy training begins.
    """
    curves = {n: curves_SxM[n] for n in ("previous_token", "attention_target") if n in curves_SxM}
    for name, values in curves_SxM.items():
        if name.startswith("p_correct_without_"):
            part = name.removeprefix("p_correct_without_")
            curves[f"p_correct_gain_without_{part}"] = values - curves_SxM["p_correct"]
    stop = int((steps_S <= steps_S[-1] - (steps_S[-1] - begin) / 4).sum())
    start = stop - LAST_PROBES
    if start < 0 or len(steps_S) - stop < LAST_PROBES:
        return {}
    # The probes start .. stop - 1 are the last ones before the last quarter.
    return {
        f"late_change/{name}": values[-LAST_PROBES:].mean(0) - values[start:stop].mean(0)
        for name, values in curves.items()
    }


def trivial_predictors(task, clean) -> dict[str, float]:
    """Returns the mean probability of the answer on clean data for three trivial predictors.

    Returns:
      p_correct_always_noise: The predictor that always names the noise.
      p_correct_uniform: The predictor that gives all symbols the same probability.
      p_correct_guess_a_successor: The predictor that gives all distinct tokens that followed the
        trigger before the same probability.
    """
    inputs_BxT, targets_BxT = np.asarray(clean.inputs), np.asarray(clean.targets)
    shares: list[float] = []
    scored_BxT = np.asarray(clean.weights) > 0
    if not scored_BxT.any():
        return {}
    for b, t in zip(*np.nonzero(scored_BxT)):
        before = np.flatnonzero(inputs_BxT[b, :t] == inputs_BxT[b, t])
        successors = set(inputs_BxT[b, before + 1].tolist())
        shares.append((targets_BxT[b, t] in successors) / max(len(successors), 1))
    return {
        "p_correct_always_noise": float(np.mean(targets_BxT[scored_BxT] == task.noise_token)),
        "p_correct_uniform": 1 / task.vocab_size,
        "p_correct_guess_a_successor": float(np.mean(shares)),
    }


def summary_of_cuts(cuts, fractions: Sequence[float]) -> dict[str, np.ndarray]:
    """Returns the effect of truncating trained matrices to each fraction of their rank, (M,) each.

    Args:
      cuts: {pattern of the matrices: {probe: (M, F)}}.
      fractions: The F fractions. The effect is measured against fraction 1.
    """
    if 1.0 not in fractions:
        return {}
    numbers = {}
    full = fractions.index(1.0)  # the position of the uncut model
    effects = (
        ("p_correct_gain", "p_correct", 1),
        ("p_noise_drop", "p_noise", -1),
        ("loss_drop", "loss", -1),
    )
    for pattern, cut in cuts.items():
        for k, fraction in enumerate(fractions):
            for effect, probe, sign in effects:
                values_MxF = np.asarray(cut[probe])
                if k != full:
                    effect_M = sign * (values_MxF[:, k] - values_MxF[:, full])
                    numbers[f"{effect}/{pattern}@{fraction:g}"] = effect_M
    return numbers


def _step_learned(steps_S, values_SxM: np.ndarray) -> np.ndarray:
    """Returns the first step at which each member's probability reaches .3, (M,); inf if never."""
    learned = values_SxM >= LEARNED_PROBABILITY
    return np.where(learned.any(0), np.array(steps_S, float)[learned.argmax(0)], np.inf)
