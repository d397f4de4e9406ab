"""Public import path of `jaxformer.interp.surgery`: low-rank cuts and removal of parameters."""

from jaxformer.interp.surgery import *  # noqa: F403
from jaxformer.interp.surgery import __all__ as __all__
