"""Interpretability: activations by address, lenses, patching, and surgery of parameters.

Shape letters are those of `jaxformer.models`: B batch, T tokens (of queries), S key positions,
N width, H heads, D head width, V vocabulary, L blocks, K positions that are read or scored. Further
letters: C cases of a patching experiment, R = C B rows, one for each prompt of each case.
"""
