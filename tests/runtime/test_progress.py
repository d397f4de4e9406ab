"""Compile times of runs, if one process makes many runs."""

import jax

from jaxformer.runtime import progress
from jaxformer.runtime.progress import Stopwatch


def test_stopwatches_share_one_listener_and_each_counts_from_its_start(monkeypatch):
    register, registered = jax.monitoring.register_event_duration_secs_listener, []

    def counted_register(listener):
        registered.append(listener)
        register(listener)

    monkeypatch.setattr(jax.monitoring, "register_event_duration_secs_listener", counted_register)
    progress._compile_timer.cache_clear()
    first = Stopwatch()
    jax.monitoring.record_event_duration_secs("/jax/core/compile/x", 2.0)
    second = Stopwatch()
    jax.monitoring.record_event_duration_secs("/jax/core/compile/x", 0.5)
    jax.monitoring.record_event_duration_secs("/jax/other", 9.0)
    assert [stopwatch.seconds()["compile"] for stopwatch in (first, second)] == [2.5, 0.5]
    assert len(registered) == 1
