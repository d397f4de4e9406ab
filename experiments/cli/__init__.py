"""The command `jaxformer`, and the common parts of its programs: configs, flags, printed tables."""
