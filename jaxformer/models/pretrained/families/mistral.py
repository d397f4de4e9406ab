"""Mistral: Llama whose blocks attend to a window."""

from jaxformer.models.pretrained.families.llama import FIELDS, GATED_RMS, NAMES
from jaxformer.models.pretrained.family import Family
from jaxformer.models.pretrained.window_fields import uniform_window

FAMILIES = {"mistral": Family(FIELDS, GATED_RMS, NAMES, windows=uniform_window(4096))}
