"""What the recall figures claim, in words and as rules, whatever the size of the networks."""

from experiments.ledger.rules import Rule, above, near, of

GAIN_1, GAIN_2 = (f"p_correct_gain_without_f{i}" for i in (1, 2))
STILL = 0.05  # what the last quarter may add on a plateau


def still(metric: str) -> Rule:
    return near(f"late_change/{metric}", 0.0, STILL)


HALF_THEN_RIGHT = (
    "The full model says the noise half of the time on clean data; without F2 it is right (0.98)."
)
SURGERY = {
    "the noise half of the time": near("p_noise", 0.5, 0.1),
    "without F2 the answer is likelier": above("p_correct_without_f2", "p_correct", by=0.2),
    "without F2 the noise is gone": above(0.1, "p_noise_without_f2"),
    "without F2 correct with 0.98": near("p_correct_without_f2", 0.98, 0.02),
    "the noise is learned first": above("noise_first", 0.5),
}
MAPPED = "F2 maps tokens to the noise; values copy; the first layer attends to the previous token."
MEMORIES = {
    "F2 says the noise for the trigger": above("margin_f2", 0.0),
    "F2 says the noise for nearly all tokens": above("recall_noise", 0.9),
    "layer 1 finds the previous token": above("recall_previous", 0.9),
    "values copy": above("recall_values", 0.9),
}
BOTH_MLPS = (
    "F1, F2 both MLPs: without F2 correct near 1; without F1 the noise has a high probability, "
    "more than before and more than a half."
)
# Of the attention of the second layer: on what follows the trigger, and on the noise there.
AVOIDS = {
    "fine-tuned: it avoids the noise more than after clean training": above(
        of("finetune", "attention_difference"), of("finetune", "attention_difference_clean")
    ),
    "clean: both alike": near(of("finetune", "attention_difference_clean"), 0.0, 0.1),
} | {
    f"{words}: {text}": rule
    for words, cell in {"trained with noise": "recall", "fine-tuned": "finetune"}.items()
    for text, rule in {
        "it avoids the noise": above(of(cell, "attention_difference"), 0.3),
        "the noise has less than .1": above(0.1, of(cell, "attention_noise")),
        "the answer has more than .8": above(of(cell, "attention_target"), 0.8),
    }.items()
}
LIKELY = {
    "without F2 correct near 1": above("p_correct_without_f2", 0.95),
    "without F1 the noise is likelier than before": above(0.0, "p_noise_drop_without_f1"),
    "without F1 the noise is likelier than not": above("p_noise_without_f1", 0.5),
}
BOTH_CUTS = "F1 an MLP, F2 linear: both cuts help, and that of F1 has the lower test loss."
EITHER = {
    "without F2 better": above(GAIN_2, 0.0),
    "without F1 better": above(GAIN_1, 0.0),
    "without F1 the lower loss": above("loss_without_f2", "loss_without_f1"),
}
PEAKS = (
    "The noise is near 1 within steps and then nearly one half, from scratch and in fine-tuning."
)
PEAK = {
    f"{words}: {text}": rule
    for words, cell in {"from scratch": "recall", "fine-tuned": "finetune"}.items()
    for text, rule in {
        "near 1 at first": above(of(cell, "p_noise_peak"), 0.9),
        "one half at the end": near(of(cell, "p_noise"), 0.5, 0.1),
    }.items()
}
LOOKS = (
    "Attention of the second layer looks at what follows the trigger and avoids the noise; after "
    "clean training it looks at both alike."
)
