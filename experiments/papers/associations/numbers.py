"""What the probes of a recall run say of the claims: a number for each member of the population."""

import numpy as np

LAST = 3  # evaluations that a reported number is the mean of
LEARNED = 0.3  # a token is learned when its probability first passes this


def kept(members) -> list[int]:
    """The members that a mean is over: of the chosen learning rate, and never diverged."""
    alive = [i for i, member in enumerate(members) if member["diverged_at"] is None]
    chosen = [i for i in alive if members[i]["chosen"]]
    rate = members[(chosen or alive)[0]]["learning_rate"]
    return [i for i in alive if members[i]["learning_rate"] == rate]


def along(steps_S, curves, settings) -> dict[str, np.ndarray]:
    """{name: (members,)}: the means of the last probes, and what they say about the claims."""
    numbers = {name: values[-LAST:].mean(0) for name, values in curves.items()}
    on_target, on_noise = numbers["attention_target"], numbers["attention_noise"]
    if on_noise.any():  # where noise stands behind triggers at all
        ratio = on_target / np.maximum(on_noise, 1e-9)  # heavy-tailed over seeds
        numbers["attention_ratio"] = ratio
    numbers["attention_difference"] = on_target - on_noise
    prefix = "p_noise_without_"
    for part in [name.removeprefix(prefix) for name in numbers if name.startswith(prefix)]:
        correct, noise = numbers[f"p_correct_without_{part}"], numbers[prefix + part]
        numbers[f"p_correct_gain_without_{part}"] = correct - numbers["p_correct"]
        numbers[f"p_noise_drop_without_{part}"] = numbers["p_noise"] - noise
        clean = numbers[f"accuracy_clean_without_{part}"] - numbers["accuracy_clean"]
        numbers[f"accuracy_clean_gain_without_{part}"] = clean
    begin = settings.pretrain_steps
    numbers |= late_changes(steps_S, curves, begin)
    early = (steps_S > begin) & (steps_S <= begin + settings.early)
    if early.any():
        numbers["p_noise_peak"] = curves["p_noise"][early].max(0)
    if begin:  # the correct token was learned on clean data
        difference = curves["attention_target"] - curves["attention_noise"]
        numbers["attention_difference_clean"] = difference[steps_S == begin][0]
        return numbers
    first = {n: _first_step(steps_S, curves[n]) for n in ("p_correct", "p_noise")}
    numbers["noise_first"] = (first["p_noise"] < first["p_correct"]) * 1.0
    return numbers


def late_changes(steps_S, curves, begin: int) -> dict[str, np.ndarray]:
    """What the last quarter of training added: 0 where a curve has come to its plateau."""
    followed = {n: curves[n] for n in ("previous_token", "attention_target") if n in curves}
    for name, values in curves.items():
        if name.startswith("p_correct_without_"):
            part = name.removeprefix("p_correct_without_")
            followed[f"p_correct_gain_without_{part}"] = values - curves["p_correct"]
    before = int((steps_S <= steps_S[-1] - (steps_S[-1] - begin) / 4).sum())
    if before < LAST or len(steps_S) - before < LAST:
        return {}
    return {
        f"late_change/{name}": values[-LAST:].mean(0) - values[before - LAST : before].mean(0)
        for name, values in followed.items()
    }


def trivial(task, clean) -> dict[str, float]:
    """p(correct) on clean data of predictors that learn nothing: the noise always, any symbol, and
    one of the tokens that followed the trigger before, however often it did."""
    inputs_BxT, targets_BxT = np.asarray(clean.inputs), np.asarray(clean.targets)
    shares: list[float] = []
    scored_BxT = np.asarray(clean.weights) > 0
    if not scored_BxT.any():
        return {}
    for b, t in zip(*np.nonzero(scored_BxT)):
        before = np.flatnonzero(inputs_BxT[b, :t] == inputs_BxT[b, t])
        followed = set(inputs_BxT[b, before + 1].tolist())
        shares.append((targets_BxT[b, t] in followed) / max(len(followed), 1))
    return {
        "p_correct_always_noise": float(np.mean(targets_BxT[scored_BxT] == task.noise_token)),
        "p_correct_uniform": 1 / task.vocab_size,
        "p_correct_guess_a_successor": float(np.mean(shares)),
    }


def of_cuts(cuts, fractions) -> dict[str, np.ndarray]:
    """What each cut of the final model changes, by member."""
    if 1.0 not in fractions:
        return {}
    numbers, whole = {}, fractions.index(1.0)
    for pattern, cut in cuts.items():
        for k, fraction in enumerate(fractions):
            for answer, sign in (("p_correct_gain", 1), ("p_noise_drop", -1), ("loss_drop", -1)):
                values_MxF = np.asarray(cut[answer.rsplit("_", 1)[0]])
                if k != whole:
                    gap_M = sign * (values_MxF[:, k] - values_MxF[:, whole])
                    numbers[f"{answer}/{pattern}@{fraction:g}"] = gap_M
    return numbers


def _first_step(steps, values_SxM) -> np.ndarray:
    """The first probed step at which each member passes LEARNED; inf if never."""
    passed = values_SxM >= LEARNED
    return np.where(passed.any(0), np.array(steps, float)[passed.argmax(0)], np.inf)
