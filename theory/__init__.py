"""Closed forms and solvers for the networks of jaxformer. Precision: run them in float64.

Each theory is a pair: `predict`, the formula, and `measure`, the same quantity from finite
networks. Use them inside `with jax.enable_x64(True):`, as the recipes do.
"""
