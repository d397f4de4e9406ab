"""The report of `jaxformer anatomy`: the effect of each part of a transformer on a score."""
