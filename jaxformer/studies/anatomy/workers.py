"""Trains members in several processes, each with its own compiled programs."""

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from jaxformer.core.errors import UserError
from jaxformer.runtime.compilation_cache import use_compilation_cache
from jaxformer.studies.anatomy.store import Store
from jaxformer.studies.anatomy.study import Member, Result, Study
from jaxformer.studies.anatomy.subject import Subject

_study: Study | None = None  # the study of this worker process

TrainAll = Callable[[Sequence[Member]], Iterator[Result]]


@contextlib.contextmanager
def workers(n: int, make_subject: Callable[[], Subject]) -> Iterator[TrainAll]:
    """Yields a function that trains members in n processes and yields results as they finish.

    When the context ends, trainings that have not begun are cancelled.

    Args:
      n: the number of processes.
      make_subject: returns the subject; it is called in each process, so it must be a function of
        a module, or a partial call of one.
    """
    context = multiprocessing.get_context("spawn")  # JAX cannot be forked
    pool = ProcessPoolExecutor(n, context, _start, (make_subject,))

    def train_all(members: Sequence[Member]) -> Iterator[Result]:
        futures = [pool.submit(_train, member) for member in members]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BrokenProcessPool:
            raise UserError(
                f"one of the {n} processes ended early; it may have run out of memory. What was "
                "trained is kept: repeat the command, or give fewer --processes."
            ) from None

    try:
        yield train_all
    finally:
        pool.shutdown(cancel_futures=True)


def _start(make_subject: Callable[[], Subject]) -> None:
    global _study
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process stops the workers
    use_compilation_cache()
    _study = Study(make_subject(), [], Store(None))


def _train(member: Member) -> Result:
    assert _study is not None
    return _study.train(member)
