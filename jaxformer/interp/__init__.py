"""Interpretability: activations by address, lenses, patching and cuts of trained networks.

Shape letters are those of `jaxformer.models`: B batch, T tokens (of queries), S key positions,
N width, H heads, D head width, V vocabulary, L blocks, K positions that are read or scored. Further
letters: C cases of a patching experiment, R = C B rows of all cases together.
"""
