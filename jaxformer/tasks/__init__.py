"""Tasks: pure functions that draw examples from a key, with losses, scores and chance levels.

Read `task` first, which has the base class, then `retrieval` as an example.
"""
