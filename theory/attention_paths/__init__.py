"""The Bayesian transformer with fixed attention, solved and sampled (arXiv 2405.15926)."""

from theory.attention_paths.order_parameter import OrderParameter, order_parameter
from theory.attention_paths.posterior import Posterior, Problem
from theory.attention_paths.predictor import (
    gram_effective,
    gram_hidden,
    head_scores,
    log_evidence,
    predict,
    predict_at,
    prune,
)
from theory.attention_paths.sampling import Sampler, sample

__all__ = [
    "OrderParameter",
    "Posterior",
    "Problem",
    "Sampler",
    "gram_effective",
    "gram_hidden",
    "head_scores",
    "log_evidence",
    "order_parameter",
    "predict",
    "predict_at",
    "prune",
    "sample",
]
