"""The covariance SDE of MixiT: the token covariance of a random network as depth grows with width.

The paper is "Attention Retrieves, MLP Memorizes" (arXiv 2506.01115, Theorem 2.1). `predict` solves
the SDE of the hidden covariance Phi. Its coefficients are `drift` and `covariance` (that of the
noise in Phi). `measure` draws networks of finite width. `Wishart` (the default) draws a factor of
Phi layer by layer; `Network` draws all weights; `Decoder` is the whole model. `predict` and
`measure` return Phi at tau = depth/width. `Mixing` selects the variant of MixiT.
`coefficients` states the equations, and `solver` the numerical scheme.

Letters of the paper:

    n, m      width and number of tokens
    h         hidden states, (n, m): one column for each token
    Phi       hidden covariance h^T h / n, (m, m); Phi^ab is the entry of tokens a and b
    tau       depth divided by width
    W^v, W^o  value and output matrix
    A         random mixing matrix, (m, m)
    kappa     variance of the mixing in units of the theory's 1/(n m)

Shape letters: M = m tokens, N = n, p = m(m+1)/2 entries of the upper triangle, P paths, H heads.
"""

from theory.covariance_sde.coefficients import (
    covariance as covariance,
    drift as drift,
    mean as mean,
    mean_trace as mean_trace,
    one_step_covariance as one_step_covariance,
    one_step_mean as one_step_mean,
    square_root as square_root,
)
from theory.covariance_sde.decoder import Decoder as Decoder
from theory.covariance_sde.finite_networks import (
    Network as Network,
    Wishart as Wishart,
    measure as measure,
)
from theory.covariance_sde.mixing import Mixing as Mixing
from theory.covariance_sde.solver import (
    Euler as Euler,
    Factor as Factor,
    correlation as correlation,
    factor_step as factor_step,
    log_trace as log_trace,
    overflowed as overflowed,
    predict as predict,
)
