"""The Bayesian transformer with fixed attention: solved, sampled and pruned.

The paper is "Dissecting the Interplay of Attention Paths in a Statistical Mechanics Theory of
Transformers" (arXiv 2405.15926); equation numbers refer to this paper. `order_parameter` solves the
limit of wide networks, and `predict` returns the mean and variance of the output f on test inputs
in this limit (Equations 5 to 12). `sample` draws from the exact posterior of finite networks. It
returns a `Posterior`, which has draws of U and the methods `mean` and `variance`. With
method="weights" it samples the weights of `jaxformer.models.attention_paths`.

Letters of the paper:

    L, H_l    attention layers, and heads of layer l
    pi        attention path: one head in each layer, (h_1, .., h_L) with h_1 slowest
    D         number of paths, the product of H_1 .. H_L
    xi^pi     attentioned input of path pi: the tokens after the fixed attention of its heads
    n         dimension of a token vector
    N_l       width of hidden layer l = 1 .. L+1; N is the largest
    v^(l)     products of the readout and the value matrices along partial paths (`bartlett`)
    V_eff     effective weights, one row of n for each path: f = sum_pi V_eff^pi . xi^pi / sqrt(D n)
    U^(l)     order parameter of layer l; U = U^(1) is (D, D), and u = U^(L+1) is a number
    chain     the order parameters u, U^(L), .., U^(1); other chains are Markov chains
    K         kernel of f given U, (P, P)
    T, Y      temperature (variance of the label noise) and labels
    S         action

Shape letters: P training examples, B test examples, D or E paths, r rank of U, S draws, C Markov
chains, m outputs.
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
