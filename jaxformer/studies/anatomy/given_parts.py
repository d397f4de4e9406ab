"""Parts that a user names, for a network whose modules have other names than ours."""

from collections.abc import Mapping
from typing import Any

from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.studies.anatomy.parts import Part

GivenParts = Mapping[str, str]  # {name: pattern of modules or parameters}


def given_parts(given: GivenParts, params: Mapping[str, Any]) -> list[Part]:
    """The named parts as `parts.parts_of` returns ours.

    A removed part has zeros for all its parameters, so that a module with biases at its end, such
    as attention or an MLP, contributes nothing to a residual stream.

    Args:
      given: {name: pattern}; a pattern may match modules, such as "att_.*" or "blocks/0/mlp".
      params: the parameters of the network, or their shapes.

    Raises:
      UserError: a pattern matches nothing.
    """
    if not isinstance(given, Mapping) or not given:
        raise UserError(
            "parts must be {name: pattern of modules}, such as {'attention': 'att_.*'}; got "
            f"{given!r:.60}."
        )
    parts = []
    for name, pattern in given.items():
        chosen = paths.select(params, pattern)  # raises for a pattern without a match
        matched = "|".join(map(_escaped, chosen))
        parts.append(Part(name, matched, zeroed=matched))
    return parts


def _escaped(path: str) -> str:
    return path.replace(".", r"\.")
