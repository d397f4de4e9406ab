"""The primary rule of each claim, and the rows that repeat the claim of another row.

An item's primary rule tests the main statement of the paper's sentence. It is the item's first rule
unless PRIMARY names another one. Holm's method corrects the family of the primary rules of distinct
claims for multiple comparisons. README counts distinct claims.

REPEATS maps each row that repeats a claim to the row that counts. The row with sizes closest to the
paper's, or with newer data, counts.
"""

from experiments.ledger.item import Paper

ON_PAR = "Frozen-QK is on par with Standard"
NO_MORE_THAN_FREQUENCIES = "rank collapse learns no more than frequencies"

# paper -> item -> sentence of its primary rule
PRIMARY = {
    "mixit": {
        "Table 1, decimal addition, more digits": "MixiT is as good as Standard",
        "Table 1, Dyck-1": "after 16,000 steps MixiT reaches 95 %",
        "Table 1, modular addition": "MixiT reaches 100 % on new pairs, within .02",
        "Table 1, memorisation": "MixiT memorises 100 %, within .02",
        "Table 1, memorisation, of a table of half the capacity": (
            "MixiT memorises 100 %, within .02"
        ),
        "Table 2, k-hop, composed": "on four hops Frozen-QK reaches 80 %",
        "Table 2, retrieval": ON_PAR,
        "Table 2, looking up by the key itself": f"after 4,000 steps {ON_PAR}",
        "Figure 2": "with 6,000 steps MixiT loses more than .2 between M=4 and 8",
        "Figure 3": "a head of layer 2 gives the answer more than half of its attention",
        "Table 3, WikiText-103": "Frozen-QK is closer to Standard than to MixiT",
        "Table 3, FineWeb-Edu": "Frozen-QK is closer to Standard than to MixiT",
        "Table 3, on tiny Shakespeare": "Frozen-QK is closer to Standard than to MixiT",
        "Table 4": "MixiT stores more than Frozen-MLP",
        "Section 1, thirds of the capacity": (
            "Frozen-MLP keeps 1 of 3 parts of Standard's capacity, within .3 bits"
        ),
        "Table 6": "the random transformer of 8 layers is .1 below that of 2",
    },
    "random_attention": {
        "Section 2, rank collapse": (
            "at depth / width = 10 two tokens of the equation have a correlation below .99"
        ),
        "Theorem 2.1": (
            "at tau = 1 the distribution of the correlation of two tokens is that of the SDE, up "
            "to a distance of .03"
        ),
        "Table 6": (
            "trained whole: MixiT's is below the random transformer's at every depth (log of the "
            "ratio)"
        ),
        "Section 5, litmus test": "in retrieval MixiT is .2 below Standard",
        "Theorem 5.1": (
            "without positions 64 frozen heads with the MLP find the previous token: the error is "
            "below .1"
        ),
    },
    "two_failure_modes": {
        "Figure 1a, b": "at beta = 1.8 the entropy of a row is below .5 ln T",
        "Figure 1c": "at 60 layers alpha_c of networks is the paper's, within .05",
        "Figure 1f": NO_MORE_THAN_FREQUENCIES,
        "Figure 1f, six curves": NO_MORE_THAN_FREQUENCIES,
        "Figure 1f, T = 32": NO_MORE_THAN_FREQUENCIES,
        "Figure 3, finite size": (
            "the transition is further below the predicted beta at rho = 0.11 than at 0.58"
        ),
        "Figure 4": "beta = 4.0 learns no more than frequencies",
        "Equation 15": "at beta = 0.85 the exponent is -0.64, within .05",
        "Figure 5": "sigma_w = 2.5: the cosine of networks is below .95",
        "Figure B.2": "at rho = 0.6 SA(p) of networks is that of Y_p = 0, within .02",
    },
    "associations": {
        **{
            f"Figure {name}": rule
            for figure, rule in (
                ("3", "without F2 the answer is .2 likelier"),
                ("7", "F2 gives the noise the largest logit for more than 90 % of tokens"),
                ("11", "without F1 the answer is likelier"),
            )
            for name in (figure, f"{figure}, to the plateau", f"{figure}, the paper's sizes")
        },
        **{
            f"Figure {name}": "trained with noise: attention on the answer exceeds that on the "
            "noise by .3"
            for name in ("4", "4, to the plateau")
        },
        "Appendix B.6, stability": "at rate .03 no seed of fine-tuning diverges",
        "Section 3, other shares of noise": "alpha = 0.3: without F2 the answer is likelier",
        "Theorem 2": "(4) is positive with the exact W_V",
    },
    "attention_paths": {
        "Figure 2c, bottom": "good and denoising are anticorrelated in the theory",
        "Figure 2c, the boost": "N = 10 beats good + denoising of the GP limit",
        "Figure 2e": "at noise 5, N = 10 beats the GP limit",
        "Figure 2e, every noise": "noise 5: N = 10 beats the GP limit",
        "Appendix, uniform attention, every noise": "noise 5: N = 10 beats the GP limit",
        "Appendix, uniform attention for the denoising head": "at noise 5, N = 10 beats the GP "
        "limit",
        "Figure 3c, e": "3e: head score and lost accuracy correlate",
    },
}
# paper -> item -> the item whose claim it repeats
REPEATS = {
    "mixit": {"Table 1, decimal addition, more digits": "Table 1, decimal addition"},
    "associations": {
        **{
            f"Figure {n}, to the plateau": f"Figure {n}, the paper's sizes"
            for n in (3, 4, 7, 8, 10, 11)
        },
        **{f"Figure {n}": f"Figure {n}, the paper's sizes" for n in (3, 4, 7, 8, 10, 11)},
        **{f"Figure {n}": f"Figure {n}, to the plateau" for n in (12, 13)},
        "Figure 10, the paper's sizes": "Figure 3, the paper's sizes",
        "Figure 6": "Figure 6, wide enough",
    },
    "attention_paths": {
        "Figure 2c, top": "Figure 2c, top, paired",
        "Figure 2e": "Figure 2e, every noise",
        "Appendix, uniform attention for the denoising head": (
            "Appendix, uniform attention, every noise"
        ),
        "Figure 3b": "Figure 3b, over splits",
        "Figure 3b, 28 pixels": "Figure 3b, over splits",
    },
}

# paper -> item -> the item with which it is counted once. These rows were found to make the same
# claim after the first plan, whose correction counts them singly.
MERGED = {
    "mixit": {
        "Table 1, memorisation, of a table of half the capacity": "Table 1, memorisation",
        "Table 2, k-hop, composed": "Table 2, k-hop",
        "Section 1, thirds of the capacity": "Table 4",
        "Table 3, on the King James text": "Table 3, on tiny Shakespeare",
        "Section 5, MixiT's perplexity": "Table 3, on tiny Shakespeare",
    },
    "two_failure_modes": {
        "Figure 1f, six curves": "Figure 1f",
        "Figure 1f, T = 32": "Figure 1f",
        "Figure 4, T = 32": "Figure 4",
        "Figure C.2, T = 32": "Figure C.2",
    },
    "attention_paths": {"Figure 3c, structure": "Figure 3c, e"},
}


def with_primary_rules(paper: Paper) -> Paper:
    """Returns the paper with the primary rule and the repeated claim of each item."""
    primary, repeats = PRIMARY.get(paper.key, {}), REPEATS.get(paper.key, {})
    merged = MERGED.get(paper.key, {})
    items = [
        item._replace(
            primary=primary.get(item.name, ""),
            repeats=repeats.get(item.name, ""),
            merged=merged.get(item.name, ""),
        )
        for item in paper.items
    ]
    unused = {*primary, *repeats, *repeats.values(), *merged, *merged.values()} - {
        item.name for item in items
    }
    if unused:
        raise KeyError(f"{paper.key} has no item {', '.join(sorted(unused))}")
    return paper._replace(items=tuple(items))
