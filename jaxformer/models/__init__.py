"""The networks, and published ones under the same addresses."""

from jaxformer.runtime.command_line import check_environment

check_environment("jax")  # before `python -m jaxformer.models.export` looks for it
