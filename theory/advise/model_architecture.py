"""A model of ours as an `Architecture`: what its spec says of the weights that are drawn."""

from typing import Any

from jaxformer.core.errors import UserError
from jaxformer.models.decoder import DecoderSpec
from jaxformer.models.encoder import EncoderSpec
from theory.signal.architecture import Architecture


def architecture(spec: Any, length: int) -> Architecture:
    """The numbers of one of our own networks."""

    def std(value: float | str, inputs: int, base: float) -> float:
        """Of the entries of a matrix, with the factor that its product has."""
        drawn = inputs**-0.5 if value == "fan_in" else float(value)
        return drawn * (base / inputs) ** 0.5 if base else drawn

    head_width = spec.width // getattr(spec, "heads", 1) if hasattr(spec, "width") else 1
    if isinstance(spec, EncoderSpec):
        entry = lambda variance: (variance / spec.width) ** 0.5  # noqa: E731
        return Architecture(
            layers=spec.layers,
            width=spec.width,
            heads=spec.heads,
            head_width=head_width,
            mlp_width=spec.width,
            std_q=entry(spec.score_std),
            std_k=entry(spec.score_std),
            std_v=entry(spec.sigma_v2),
            std_1=entry(spec.sigma_w2),
            std_2=entry(spec.sigma_w2),
            std_bias=spec.sigma_b2**0.5,
            score_scale=head_width**-0.5,
            alpha_sa=spec.alpha_sa,
            alpha_mlp=spec.alpha_mlp,
            causal=spec.causal,
            activation=spec.activation,
            norm="rms",
            std_position=1.0,
            embed_norm=True,
        )
    if not isinstance(spec, DecoderSpec) or spec.mixer != "softmax" or not spec.use_norm:
        what = getattr(spec, "mixer", type(spec).__name__)
        raise UserError(f"--run judges encoders and softmax decoders with norms, got {what!r}.")
    if not spec.use_mlp:
        raise UserError("--run judges decoders with MLPs, got use_mlp=False.")
    inside = spec.width, spec.base_width
    return Architecture(
        layers=spec.layers,
        width=spec.width,
        heads=spec.heads,
        head_width=head_width,
        mlp_width=spec.mlp_width,
        std_q=std(spec.qk_init_std, *inside),
        std_k=std(spec.qk_init_std, *inside),
        std_v=std(spec.init_std, *inside),
        # The last matrix of a branch carries the branch's own factor.
        std_o=spec.branch * std(spec.init_std, *inside),
        std_1=std(spec.init_std, *inside),
        std_2=spec.branch * std(spec.init_std, spec.mlp_width, spec.base_mlp_width),
        score_scale=head_width**-0.5,
        alpha_sa=spec.residual_scale,
        alpha_mlp=spec.residual_scale,
        pre_norm=True,
        norm="rms",
        eps=1e-6,
        causal=spec.causal,
        gated=True,
        activation=spec.act,
        rotary=1.0,
        std_embed=spec.embed_init_std,
        std_position=spec.embed_init_std if spec.learned_positions else 0.0,
    )
