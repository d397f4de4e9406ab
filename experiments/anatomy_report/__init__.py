"""The parts of `jaxformer anatomy` that need configs or a cluster; `jaxformer.studies.anatomy` has
the rest."""
