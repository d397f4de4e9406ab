"""Softmax attention that never stores its weights, with the kernel of the platform.

    NVIDIA    cuDNN, in half precision
    TPU       the splash kernel of jax.experimental.pallas, if the length is a multiple of 128;
              it also keeps attention within documents
    others    the plain product, whose weights the backward pass computes again

The memory grows linearly with the length T. The plain product also computes attention with a mask
or within documents, which cuDNN would store as T^2 biases. Of more than LONG tokens it takes
QUERIES at a time, so that their weights are in memory and not all T^2.
Models use this function where no weights are captured or edited. Shape letters: see
`jaxformer.models`; G heads of keys and values serve H heads of queries.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from jaxformer.core import layouts
from jaxformer.core.sharding import BATCH_AXES, axes_that_divide
from jaxformer.models.half_precision import DENSE, wide

QUERIES, LONG = 1024, 2048  # tokens
TILE = 128  # the TPU kernel takes multiples of so many tokens
BLOCKS = (512, 256, TILE)  # tokens that it computes at once: as many as divide the length
MAX_CUDNN_WIDTH = 128  # of a head, in a backward pass
LAYOUT = (BATCH_AXES, None, "tensor", None)  # the mesh axes of (B, T, H, D)


def fused_attention(
    q_BxTxHxD: jax.Array,
    k_BxSxGxD: jax.Array,
    v_BxSxGxD: jax.Array,
    mask_BxHxTxS: jax.Array | None = None,
    causal: bool = False,
    documents: tuple[jax.Array, jax.Array] | None = None,
) -> jax.Array:
    """Returns softmax(q k^T / sqrt(D)) v, (B, T, H, D).

    Args:
      q_BxTxHxD: the queries.
      k_BxSxGxD: the keys; query head h uses head h // (H/G).
      v_BxSxGxD: the values.
      mask_BxHxTxS: booleans that broadcast against the scores, true where a query sees a key.
      causal: whether a query sees keys up to its own position only; it needs no mask.
      documents: the (B, T) and (B, S) numbers of the documents of queries and keys; a query sees
        keys of its own document only. They need no T^2 booleans in memory.
    """
    arguments = (q_BxTxHxD, k_BxSxGxD, v_BxSxGxD)

    def dot_product_attention(q, k, v):
        if q.shape[1] > LONG:
            return _by_queries(q, k, v, mask_BxHxTxS, causal, documents)
        mask = within_documents(mask_BxHxTxS, documents)
        return jax.nn.dot_product_attention(q, k, v, mask=mask, is_causal=causal)

    def in_float32(q, k, v):  # XLA's CPU backend has no product of float16 summed in float32
        return dot_product_attention(*map(wide, (q, k, v))).astype(q.dtype)

    kernels = {} if mask_BxHxTxS is not None else _kernels(*arguments, causal, documents)
    if q_BxTxHxD.dtype == jnp.float16:
        kernels["cpu"] = jax.checkpoint(in_float32)
    plain_product = jax.checkpoint(dot_product_attention)
    if not kernels:
        return plain_product(*arguments)
    return jax.lax.platform_dependent(*arguments, **kernels, default=plain_product)


def within_documents(mask: jax.Array | None, documents: Any) -> Any:
    """Returns the mask without the pairs of a query and a key of different documents.

    Args:
      mask: booleans that broadcast against (B, H, T, S), or None.
      documents: the (B, T) and (B, S) numbers of queries and keys, or None.
    """
    if documents is None:
        return mask
    document_BxT, document_BxS = documents
    same_Bx1xTxS = (document_BxT[:, :, None] == document_BxS[:, None])[:, None]
    if mask is None:
        return same_Bx1xTxS
    return jnp.expand_dims(mask, range(4 - mask.ndim)) & same_Bx1xTxS


def _by_queries(
    q_BxTxHxD: jax.Array,
    k_BxSxGxD: jax.Array,
    v_BxSxGxD: jax.Array,
    mask_BxHxTxS: jax.Array | None,
    causal: bool,
    documents: tuple[jax.Array, jax.Array] | None,
) -> jax.Array:
    """The plain product of QUERIES queries at a time, each computed again in the backward pass."""
    T, S = q_BxTxHxD.shape[1], k_BxSxGxD.shape[1]
    starts = jnp.arange(0, T, QUERIES)

    def in_parts(x, axis):
        """Moves parts of QUERIES entries to a leading axis; the last part is filled up."""
        padding = [(0, 0)] * x.ndim
        padding[axis] = (0, -T % QUERIES)
        split = (*x.shape[:axis], len(starts), QUERIES, *x.shape[axis + 1 :])
        return jnp.moveaxis(jnp.pad(x, padding, mode="edge").reshape(split), axis, 0)

    has_rows = mask_BxHxTxS is not None and mask_BxHxTxS.shape[2] > 1

    def attend(part):
        start, q, mask, document_BxQ = part
        mask = mask if has_rows else mask_BxHxTxS
        if documents is not None:
            mask = within_documents(mask, (document_BxQ, documents[1]))
        if causal:
            seen_QxS = start + jnp.arange(QUERIES)[:, None] >= jnp.arange(S)[None]
            mask = seen_QxS[None, None] if mask is None else mask & seen_QxS[None, None]
        keys_values = (x.astype(q.dtype) for x in (wide_k, wide_v))
        return jax.nn.dot_product_attention(q, *keys_values, mask=mask)

    # The gradients of keys and values are sums over the parts, so they are float32.
    wide_k, wide_v = wide(k_BxSxGxD), wide(v_BxSxGxD)
    masks = in_parts(mask_BxHxTxS, 2) if has_rows else None
    numbers = None if documents is None else in_parts(documents[0], 1)
    parts = (starts, in_parts(q_BxTxHxD, 1), masks, numbers)
    out = jax.lax.map(jax.checkpoint(attend), parts)  # (parts, B, QUERIES, H, D)
    return jnp.moveaxis(out, 0, 1).reshape(q_BxTxHxD.shape[0], -1, *q_BxTxHxD.shape[2:])[:, :T]


def _kernels(
    q_BxTxHxD: jax.Array, k_BxSxGxD: jax.Array, v_BxSxGxD: jax.Array, causal: bool, documents: Any
) -> dict[str, Any]:
    """Returns {platform: attention(q, k, v)} of the kernels that compute these arrays."""
    T, _, D = q_BxTxHxD.shape[1:]

    def cudnn(q, k, v):
        return jax.nn.dot_product_attention(q, k, v, is_causal=causal, implementation="cudnn")

    kernels: dict[str, Any] = {}
    arguments = (q_BxTxHxD, k_BxSxGxD, v_BxSxGxD)
    half_precision = q_BxTxHxD.dtype.itemsize == 2
    has_cudnn = half_precision and documents is None
    if has_cudnn and D % 8 == 0 and D <= MAX_CUDNN_WIDTH and _traces(cudnn, arguments):
        kernels["cuda"] = cudnn
    if k_BxSxGxD.shape[1] == T and T % TILE == 0 and D <= TILE:
        kernels["tpu"] = _flash_on_mesh(q_BxTxHxD, causal, documents)
    return kernels


def _traces(function: Any, arguments: Any) -> bool:
    """Returns whether a function and its gradient can be traced here.

    Tracing cuDNN attention needs the library, and its backward pass takes no odd lengths.
    """
    try:
        jax.eval_shape(jax.grad(lambda *x: wide(function(*x)).sum(), (0, 1, 2)), *arguments)
    except RuntimeError:
        return False
    return True


def flash_attention(
    q_BxTxHxD: Any,
    k_BxTxGxD: Any,
    v_BxTxGxD: Any,
    causal: bool,
    documents: Any = None,
    interpret: bool = False,
) -> jax.Array:
    """Returns attention by the TPU's kernel, (B, T, H, D); `interpret` computes it elsewhere.

    The kernel reads queries, keys and values as (B, H, D, T), because an array whose last axis has
    fewer than 128 entries would be padded to 128: twice the memory and traffic for D = 64.
    """
    # Imported here, because it takes a second that only fused models need.
    from jax.experimental.pallas.ops.tpu import splash_attention as splash

    T, H, D = q_BxTxHxD.shape[1:]
    size = next(size for size in BLOCKS if T % size == 0)
    names = ("q", "kv", "kv_compute", "q_dkv", "kv_dkv", "kv_dkv_compute", "q_dq", "kv_dq")
    minor = dict.fromkeys(("q_layout", "k_layout", "v_layout"), splash.QKVLayout.SEQ_MINOR)
    mask = (splash.CausalMask if causal else splash.FullMask)((T, T))
    kernel = splash.make_splash_mha(
        splash.MultiHeadMask([mask] * H),
        block_sizes=splash.BlockSizes(**{f"block_{name}": size for name in names}, **minor),
        head_shards=1,
        q_seq_shards=1,
        residual_checkpoint_name=DENSE,  # remat that keeps linear maps keeps its output too
        interpret=interpret,
    )
    scaled = q_BxTxHxD * jnp.asarray(D**-0.5, q_BxTxHxD.dtype)
    by_head = (x.swapaxes(1, 2) for x in (scaled, k_BxTxGxD, v_BxTxGxD))
    segments = None if documents is None else splash.SegmentIds(*documents)
    out_BxHxTxD: Any = jax.vmap(kernel)(*by_head, segments)
    return out_BxHxTxD.swapaxes(1, 2)


def _flash_on_mesh(q_BxTxHxD: jax.Array, causal: bool, documents: Any) -> Any:
    """Returns attention(q, k, v) by the TPU's kernel, which XLA cannot split over a mesh itself."""

    def attend(q, k, v, *documents):
        return flash_attention(q, k, v, causal, documents or None)

    mesh = layouts.mesh_of(q_BxTxHxD)
    if mesh is None:
        return lambda q, k, v: attend(q, k, v, *(documents or ()))

    def places(x):
        return [axes_that_divide(n, axis, mesh) for n, axis in zip(x.shape, LAYOUT, strict=True)]

    def split(q, k, v):
        if places(k) != places(q):  # fewer heads of keys than devices: each query head gets its own
            group = q.shape[2] // k.shape[2]
            k, v = (jnp.repeat(x, group, axis=2) for x in (k, v))
        spec = P(*places(q))
        specs = (spec,) * 3 + (P(spec[0], None),) * len(documents or ())
        on_mesh = jax.shard_map(attend, mesh=mesh, in_specs=specs, out_specs=spec, check_vma=False)
        return on_mesh(q, k, v, *(documents or ()))

    return split
