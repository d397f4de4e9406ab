"""Reads the config.json of a published model as a `PretrainedSpec`."""

from collections.abc import Mapping
from typing import Any

from jaxformer.core.errors import UserError, one_line
from jaxformer.models.pretrained.config_numbers import config_numbers
from jaxformer.models.pretrained.rotary import Rotary
from jaxformer.models.pretrained.spec import PretrainedSpec


def describe(hf_config: Mapping[str, Any], file: str = "config.json") -> PretrainedSpec:
    """Returns the spec of a Hugging Face config.json.

    Args:
      hf_config: the content of the file.
      file: its name in error messages.

    Raises:
      UserError: for a family or a field that is not supported; the message names it.
    """
    try:
        fields = config_numbers(hf_config)
        for name in ("rotary", "local_rotary"):
            if fields.get(name) is not None:
                fields[name] = Rotary(**fields[name])
        return PretrainedSpec(**fields)
    except UserError as error:
        raise UserError(f"{file}: {error}") from None
    except KeyError as error:
        raise UserError(f"{file} lacks the field {error}.") from None
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        reason = one_line(error, 120)
        raise UserError(f"{file}: a field has the wrong type or size: {reason}.") from None
