"""The atlas of `jaxformer atlas`: its tasks, the table of all anatomies, and the page."""
