"""Attention windows in a config.json: the column `windows` of families."""

from collections.abc import Callable, Iterable

from jaxformer.core.errors import UserError, check_choice
from jaxformer.models.pretrained.family import Config, Windows

WINDOW_FIELDS = (
    "sliding_window",
    "use_sliding_window",
    "max_window_layers",
    "layer_types",
    "sliding_window_pattern",
    "_sliding_window_pattern",
)


def uniform_window(default: int | None) -> Callable[[Config, int], Windows]:
    """A reader for families in which all blocks have the same window, or none has one.

    Args:
        default: the window if the field sliding_window is missing; None: no window.
    """

    def read(config: Config, layers: int) -> Windows:
        window = config.get("sliding_window", default) or 0
        windowed = windowed_blocks(config, layers, [window > 0] * layers)
        if windowed != (window > 0,) * layers:
            raise UserError(f"layer_types are not supported for {config['model_type']}.")
        return window, ()

    return read


def optional_windows(config: Config, layers: int, default: list[bool]) -> Windows:
    """No window unless use_sliding_window is true, and then that of `windowed_blocks`."""
    window = config.get("sliding_window") if config.get("use_sliding_window") else None
    if not window:
        windowed_blocks(config, layers, ())  # raises if the field layer_types is invalid
        return 0, ()
    return window, windowed_blocks(config, layers, default)


def windowed_blocks(config: Config, layers: int, default: Iterable[bool]) -> tuple[bool, ...]:
    """Whether each block has the window, by layer_types or, without this field, by `default`."""
    kinds = config.get("layer_types")
    if kinds is None:
        return tuple(default)
    if len(kinds) != layers:
        raise UserError(f"layer_types has {len(kinds)} entries for {layers} layers.")
    for kind in kinds:
        check_choice("layer_types", kind, ("sliding_attention", "full_attention"))
    return tuple(kind == "sliding_attention" for kind in kinds)
