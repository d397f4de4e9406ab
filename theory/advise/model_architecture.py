"""Converts the spec of a jaxformer model to the `Architecture` of its initial weights."""

from typing import Any

from jaxformer.core.errors import UserError
from jaxformer.models.decoder import DecoderSpec
from jaxformer.models.encoder import EncoderSpec
from theory.signal.architecture import Architecture


def architecture_of(spec: Any) -> Architecture:
    """Returns the architecture of an encoder, or of a softmax decoder with norms and MLPs.

    Args:
      spec: the model's spec, such as `EncoderSpec` or `DecoderSpec`. Other models raise UserError.
    """
    if not isinstance(spec, EncoderSpec):
        _check_decoder(spec)
    head_width = getattr(spec, "head_dim", spec.width // spec.heads)
    common = {
        "layers": spec.layers,
        "width": spec.width,
        "heads": spec.heads,
        "head_width": head_width,
        "score_scale": getattr(spec, "score_scale", 0) or head_width**-0.5,
        "causal": spec.causal,
        "norm": "rms",
    }
    if isinstance(spec, EncoderSpec):
        # Entries of W_Q and W_K have variance score_std / width (arXiv 2505.24333, Equation 11).
        std_qk = float((spec.score_std / spec.width) ** 0.5)
        std_w = (spec.sigma_w2 / spec.width) ** 0.5
        return Architecture(
            **common,
            mlp_width=spec.width,
            std_q=std_qk,
            std_k=std_qk,
            std_v=(spec.sigma_v2 / spec.width) ** 0.5,
            std_1=std_w,
            std_2=std_w,
            std_bias=spec.sigma_b2**0.5,
            alpha_sa=spec.alpha_sa,
            alpha_mlp=spec.alpha_mlp,
            activation=spec.activation,
            std_position=1.0,
            embed_norm=True,
        )
    std_qk = _entry_std(spec.qk_init_std, spec.width, spec.base_width)
    std = _entry_std(spec.init_std, spec.width, spec.base_width)
    return Architecture(
        **common,
        mlp_width=spec.mlp_width,
        std_q=std_qk,
        std_k=std_qk,
        std_v=std,
        # The last matrix of each branch is multiplied by the factor of the branch.
        std_o=spec.branch * std,
        std_1=std,
        std_2=spec.branch * _entry_std(spec.init_std, spec.mlp_width, spec.base_mlp_width),
        alpha_sa=spec.residual_scale,
        alpha_mlp=spec.residual_scale,
        pre_norm=True,
        eps=1e-6,
        gated=spec.gated,
        activation=spec.act,
        rotary=float(spec.is_rotary),
        std_embed=spec.embed_init_std,
        std_position=spec.embed_init_std if spec.learned_positions else 0.0,
    )


def _check_decoder(spec: Any) -> None:
    if not isinstance(spec, DecoderSpec) or spec.mixer != "softmax" or not spec.use_norm:
        kind = getattr(spec, "mixer", type(spec).__name__)
        raise UserError(f"--run needs an encoder or a softmax decoder with norms, got {kind!r}.")
    if not spec.use_mlp:
        raise UserError("--run needs a decoder with MLPs, got use_mlp=False.")


def _entry_std(init_std: float | str, fan_in: int, base_fan_in: float) -> float:
    """Returns the standard deviation of a matrix's entries times the factor of its linear map.

    The factor is sqrt(base_fan_in / fan_in), and 1 if base_fan_in is 0.
    """
    std = fan_in**-0.5 if init_std == "fan_in" else float(init_std)
    return std * (base_fan_in / fan_in) ** 0.5 if base_fan_in else std
