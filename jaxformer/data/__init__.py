"""Texts and images: readers, tokenizers, prepared texts on disk, n-grams.

Read `protocols` first, then `tokens`. `jaxformer.tasks` makes examples of this data.
"""
