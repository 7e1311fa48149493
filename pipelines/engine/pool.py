"""Worker processes of this machine: each call gets one result, whatever becomes of the process that had it.

A task whose worker is killed, or that raises an error nobody expects, is tried again, as often as Spark tries
one. A worker that is forked shares the kernels that are loaded in this process, and starts at once. Forking
is safe before this process has threads, so a killed worker is replaced by one that starts from nothing; so
are those of a process in which Spark may run (``udfs.worker``).
"""

from __future__ import annotations

import abc
import ctypes
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from threading import Event, Lock
from typing import Any

from kafka_log_lake.pipelines.cli.errors import RunFailed
from kafka_log_lake.pipelines.cli.status import say
from kafka_log_lake.udfs import now_reading, worker
from kafka_log_lake.udfs.calls import StageFailed, ask, run_each

_ATTEMPTS = 4  # of a task, as many as Spark's in the embedded session
_PR_SET_PDEATHSIG = 1  # linux/prctl.h

# Gives what a function gives for each item, in their order; the function and the items can be pickled
Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]


class WorkerPool:
    """Up to ``number`` worker processes, which start with the first task and stay until ``close``.

    is_forked: whether they are forked; else one starts for a task when none is idle. was_stopped: whether
    Ctrl-C ended the last ``map`` early.
    """

    def __init__(self, number: int, is_forked: bool = False) -> None:
        self.number, self.was_stopped = number, False
        self._is_forked = is_forked and "fork" in multiprocessing.get_all_start_methods()
        self._lock, self._given_up = Lock(), Event()
        self._threads: ThreadPoolExecutor | None = None
        self._futures: list[Future[Any]] = []
        self._all: list[Worker] = []
        self._idle: list[Worker] = []

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, function: Callable[[Any], Any], item: object) -> Future[Any]:
        """Calls a function in a worker; all of the call and its result can be pickled.

        Its future raises a StageFailed or a RunFailed where all attempts fail; a JobError of the function.
        """
        if self._threads is None:
            if self._is_forked:  # before there are threads
                for _ in range(self.number):
                    self._all.append(ForkedWorker(self._all))
                self._idle = [*self._all]
            self._given_up = Event()
            self._threads = ThreadPoolExecutor(self.number)
        return self._threads.submit(self._run, pickle.dumps((function, item)), self._given_up)

    def map(
        self,
        function: Callable[[Any], Any],
        items: Iterable[object],
        together: int = 1,
        may_stop: bool = False,
    ) -> Iterator[Any]:
        """Yields what a function gives for each item, in their order. See ``submit``.

        together: items that a worker gets at a time. may_stop: the first Ctrl-C lets the workers finish what
        they have begun, and begins nothing else (``was_stopped``): theirs are the only results then. The
        second one ends all at once.
        """
        given, failures = list(items), list[BaseException]()
        self.was_stopped, self._futures = False, []

        def end_if_failed(future: Future[object]) -> None:
            if not future.cancelled() and (error := future.exception()) is not None:
                failures.append(error)
                self._end_workers()

        try:
            for at in range(0, len(given), together):
                future = self.submit(partial(run_each, function), given[at : at + together])
                self._futures.append(future)
                future.add_done_callback(end_if_failed)
            for future in self._futures:
                yield from self._result(future, may_stop)
        except BaseException:
            failed = failures[:1]  # those that follow are of the workers that are ended
            self.close()
            if failed:
                raise failed[0] from None
            raise

    def _result(self, future: Future[Any], may_stop: bool) -> Sequence[Any]:
        """Waits for the results of a future; () if Ctrl-C came before it was begun."""
        try:
            return () if future.cancelled() else future.result()
        except KeyboardInterrupt:
            if self.was_stopped or not may_stop:
                raise
            self.was_stopped = True
            say("stopping when what is begun is done; Ctrl-C again stops at once")
            for other in self._futures:
                other.cancel()
            return self._result(future, may_stop)

    def finished_share(self) -> float:
        """Returns the share of finished tasks in those of the last ``map``, 0 to 1."""
        return sum(future.done() for future in self._futures) / max(1, len(self._futures))

    def close(self) -> None:
        """Ends the workers, those that run a task too. Another ``submit`` starts others."""
        self._end_workers()
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(cancel_futures=True)

    def _end_workers(self) -> None:
        with self._lock:
            self._given_up.set()
            for worker in self._all:
                worker.end()
            self._all, self._idle = [], []

    def _run(self, call: bytes, given_up: Event) -> object:
        failed: Exception = RunFailed("another task failed")
        for _ in range(_ATTEMPTS):
            worker = self._take(given_up)
            if worker is None:
                break
            try:
                return ask(worker.connection, call)
            except StageFailed as error:
                failed = error
            except (EOFError, OSError):
                failed = RunFailed(worker.how_it_ended())
            finally:
                self._put_back(worker)
        raise failed

    def _take(self, given_up: Event) -> Worker | None:
        """Returns an idle worker, or a new one; None when the tasks are given up."""
        with self._lock:
            if given_up.is_set():
                return None
            if self._idle:
                return self._idle.pop()
            self._all.append(StartedWorker())
            return self._all[-1]

    def _put_back(self, worker: Worker) -> None:
        with self._lock:
            if worker in self._all and worker.is_alive:
                self._idle.append(worker)


class Worker(abc.ABC):
    """One process, and this end of its connection. It ends when this process does."""

    def __init__(self) -> None:
        self._notes = _open_notes()
        weakref.finalize(self, os.close, self._notes)
        self.connection, other = multiprocessing.Pipe()
        with _holding_back_interrupts():
            self._start(other)
        other.close()

    @abc.abstractmethod
    def _start(self, connection: Connection) -> None:
        """Starts the process, which serves this end of the connection."""

    @abc.abstractmethod
    def _wait(self) -> int:
        """Waits until the process has ended; returns its exit code, or the negative number of a signal."""

    @abc.abstractmethod
    def _kill(self) -> None: ...

    @property
    @abc.abstractmethod
    def is_alive(self) -> bool: ...

    def how_it_ended(self) -> str:
        """Returns a line about a worker that has ended: by what, and what it read then."""
        self.connection.close()
        code, noted = self._wait(), now_reading.noted(self._notes)
        reading = f" while it read {noted}" if noted else ""
        if code >= 0:
            return f"a worker process ended with code {code}{reading}"
        hint = ", as the system does where memory is short" if code == -signal.SIGKILL else ""
        return f"a worker process was ended by {signal.Signals(-code).name}{reading}{hint}"

    def end(self) -> None:
        """Ends the process. Its connection stays open for the thread that waits for an answer."""
        self._kill()
        self._wait()


class ForkedWorker(Worker):
    """A worker that is a copy of this process. others: those that were forked before."""

    def __init__(self, others: Sequence[Worker]) -> None:
        self._others = others
        super().__init__()

    def _start(self, connection: Connection) -> None:
        inherited = [self.connection, *(other.connection for other in self._others)]
        arguments = connection, self._notes, inherited
        process = multiprocessing.get_context("fork").Process(target=_serve, args=arguments, daemon=True)
        process.start()
        self._process = process

    def _wait(self) -> int:
        self._process.join()
        code = self._process.exitcode
        return -signal.SIGKILL if code is None else code  # None: another thread has waited for it

    def _kill(self) -> None:
        self._process.kill()

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()


def _serve(connection: Connection, notes: int, inherited: Iterable[Connection]) -> None:
    """Answers calls in a forked process, which Linux ends when its parent is killed.

    inherited: ends of connections that are the parent's: while one is open, the other end does not end.
    """
    for connection_ in inherited:
        connection_.close()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    worker.serve(connection, notes)


class StartedWorker(Worker):
    """A worker that starts as a new Python, with the modules that this process finds."""

    def _start(self, connection: Connection) -> None:
        path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        numbers = connection.fileno(), self._notes
        # -P: no module of the current folder hides ours
        command = [sys.executable, "-P", "-m", worker.__name__, *map(str, numbers)]
        environment = {**os.environ, "PYTHONPATH": path}
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, pass_fds=numbers)

    def _wait(self) -> int:
        return self._process.wait()

    def _kill(self) -> None:
        self._process.kill()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None


def _open_notes() -> int:
    """Opens a file for the notes of a worker (``udfs.now_reading``): in memory on Linux, else on a disk.

    Where a system allows neither (``vm.memfd_noexec``, no folder that can be written), notes are lost.
    """
    with suppress(AttributeError, OSError):
        return os.memfd_create("kafka-log-lake")
    with suppress(OSError), tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
    return os.open(os.devnull, os.O_RDWR)


@contextmanager
def _holding_back_interrupts() -> Iterator[None]:
    """Holds Ctrl-C back while a process starts, which reaches it too: until it says that it ignores it."""
    signals = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, signals)
