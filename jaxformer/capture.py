"""Public import path of `jaxformer.interp.capture`: read and edit activations by address."""

from jaxformer.interp.capture import *  # noqa: F403
from jaxformer.interp.capture import __all__ as __all__
