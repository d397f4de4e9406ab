"""SmolLM3: Llama with blocks that have no rotary positions."""

from jaxformer.core.errors import UserError
from jaxformer.models.pretrained.families.llama import FIELDS, GATED_RMS, NAMES
from jaxformer.models.pretrained.family import (
    ATTENTION_BIAS,
    MLP_BIAS,
    TIED,
    Config,
    Family,
    Numbers,
    Windows,
)
from jaxformer.models.pretrained.window_fields import optional_windows


def smollm3_windows(config: Config, layers: int) -> Windows:
    """Blocks without rotary positions have the window."""
    interval = config.get("no_rope_layer_interval", 4)
    # In spite of its name, no_rope_layers is 1 for blocks with rotary positions.
    rotated = config.get("no_rope_layers") or [(i + 1) % interval for i in range(layers)]
    return optional_windows(config, layers, [not is_rotated for is_rotated in rotated[:layers]])


def finish_smollm3(config: Config, numbers: Numbers) -> None:
    """Some blocks, by default every fourth one, have no rotary positions."""
    layers, interval = numbers["layers"], config.get("no_rope_layer_interval", 4)
    rotated = config.get("no_rope_layers")
    if rotated is None:
        rotated = [(i + 1) % interval != 0 for i in range(layers)]
    if len(rotated) < layers:
        raise UserError(f"no_rope_layers has {len(rotated)} entries for {layers} layers.")
    numbers["rotated"] = tuple(bool(x) for x in rotated[:layers])


FAMILIES = {
    "smollm3": Family(
        FIELDS | TIED | ATTENTION_BIAS | MLP_BIAS,
        GATED_RMS,
        NAMES,
        windows=smollm3_windows,
        base=2_000_000.0,
        finish=finish_smollm3,
        further=("no_rope_layers", "no_rope_layer_interval"),
    )
}
