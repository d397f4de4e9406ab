"""The networks, and published ones under the same addresses."""

from jaxformer.runtime.command_line import require_package

require_package("jax")  # before `python -m jaxformer.models.export` looks for it
