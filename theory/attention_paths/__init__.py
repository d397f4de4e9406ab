"""The Bayesian transformer with fixed attention, solved and sampled (arXiv 2405.15926).

`order_parameter` solves the limit of wide networks and `predict` gives its mean and variance of f
on test inputs (eqs. 5 to 12). Their partner is `sample`, which draws from the posterior of finite
networks: its `Posterior` has the same U, `.mean` and `.variance`, and with method="weights" it
samples the weights of `jaxformer.models.attention_paths`.
"""

from theory.attention_paths.diagnostics import doubts as doubts
from theory.attention_paths.network_paths import (
    attentioned_of as attentioned_of,
    from_maps as from_maps,
)
from theory.attention_paths.order_parameter import (
    OrderParameter as OrderParameter,
    order_parameter as order_parameter,
)
from theory.attention_paths.posterior import Posterior as Posterior, Problem as Problem
from theory.attention_paths.predictor import (
    gram_effective as gram_effective,
    gram_hidden as gram_hidden,
    head_scores as head_scores,
    log_evidence as log_evidence,
    predict as predict,
    predict_at as predict_at,
    prune as prune,
)
from theory.attention_paths.sampling import Sampler as Sampler, sample as sample
