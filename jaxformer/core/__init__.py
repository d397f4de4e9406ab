"""The base of the package: settings, errors, parameter paths, partitions, optimizers, mesh axes.

All other packages of jaxformer import it, and it imports none of them. Read `partition` first.
"""
