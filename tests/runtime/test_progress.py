"""How long a run took, over many runs of one process."""

from jax._src import monitoring

from jaxformer.runtime.progress import Stopwatch


def test_many_stopwatches_listen_once_and_each_counts_from_its_beginning():
    first = Stopwatch()
    listeners = len(monitoring.get_event_duration_listeners())
    monitoring.record_event_duration_secs("/jax/core/compile/x", 2.0)
    second = Stopwatch()
    monitoring.record_event_duration_secs("/jax/core/compile/x", 0.5)
    monitoring.record_event_duration_secs("/jax/other", 9.0)
    assert [one.seconds()["compile"] for one in (first, second)] == [2.5, 0.5]
    assert len(monitoring.get_event_duration_listeners()) == listeners
