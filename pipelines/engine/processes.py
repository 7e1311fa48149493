"""Runs stages in worker processes of this machine, where no Spark is needed (``udfs.worker``)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from threading import Event, Lock
from typing import IO

import pyarrow as pa

from kafka_log_lake.pipelines.cli.errors import RunFailed
from kafka_log_lake.pipelines.cli.status import say
from kafka_log_lake.udfs import worker
from kafka_log_lake.udfs.worker import MakeStage, StageFailed

_ATTEMPTS = 4  # of a task, as many as Spark's in the embedded session


class Processes:
    """Runs tasks in up to ``number`` workers: one starts when none is idle, and stays until ``close``."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._tasks = self._finished = 0
        self.was_stopped = False
        self._lock = Lock()
        self._all: list[_Worker] = []
        self._idle: list[_Worker] = []

    def run(self, make: MakeStage, tasks: Sequence[pa.Table], may_stop: bool = False) -> list[pa.Table]:
        """Runs a stage on the rows of each task; returns the results in the order of the tasks.

        may_stop: the first Ctrl-C lets the workers finish the tasks that they have begun, and begins no other
        (``was_stopped``): theirs are the only answers then. The second one ends all at once.
        Raises a StageFailed or a RunFailed where all attempts of a task fail.
        """
        given_up = Event()
        self._tasks, self.was_stopped = len(tasks), False
        futures: list[Future[pa.Table]] = []
        with ThreadPoolExecutor(self.number) as threads:
            try:
                try:
                    futures.extend(threads.submit(self._run, make, task, given_up) for task in tasks)
                    self._wait(futures)
                except KeyboardInterrupt:
                    if not may_stop:
                        raise
                    self.was_stopped = True
                    say("stopping when what is begun is done; Ctrl-C again stops at once")
                    futures = [one for one in futures if not one.cancel()]
                    self._wait(futures)
            except BaseException:
                given_up.set()
                self.close()
                raise
        return [future.result() for future in futures]

    def _wait(self, futures: Sequence[Future[pa.Table]]) -> None:
        """Waits until all are done, or one has failed."""
        self._finished = 0
        for future in as_completed(futures):
            future.result()
            self._finished += 1

    def finished_share(self) -> float:
        """Returns the share of finished tasks in those of ``run``, 0 to 1."""
        return self._finished / max(1, self._tasks)

    def close(self) -> None:
        """Ends the workers, those that run a task too."""
        with self._lock:
            for one in self._all:
                one.end()
            self._all, self._idle = [], []

    def _run(self, make: MakeStage, task: pa.Table, given_up: Event) -> pa.Table:
        failed: Exception = RunFailed("another task failed")
        for _ in range(_ATTEMPTS):
            one = self._take(given_up)
            if one is None:
                break
            try:
                answer = one.ask(make, task)
            except StageFailed as error:
                failed = error
            except (EOFError, OSError):
                failed = RunFailed(one.how_it_ended())
                continue
            else:
                return answer
            finally:
                self._put_back(one)
        raise failed

    def _take(self, given_up: Event) -> _Worker | None:
        """Returns an idle worker, or a new one; None when the run is given up."""
        with self._lock:
            if given_up.is_set():
                return None
            if self._idle:
                return self._idle.pop()
            self._all.append(_Worker())
            return self._all[-1]

    def _put_back(self, one: _Worker) -> None:
        with self._lock:
            if one in self._all and one.is_alive:
                self._idle.append(one)


class _Worker:
    """One worker process. It ends when its input does: also when this process is killed."""

    def __init__(self) -> None:
        path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        # -P: no module of the current folder hides ours
        command = [sys.executable, "-P", "-m", worker.__name__]
        # Ctrl-C reaches every process of a terminal: it waits until the worker says that it ignores it
        signals = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": path},
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, signals)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, make: MakeStage, rows: pa.Table) -> pa.Table:
        """Has the worker run a stage on rows, and returns the result.

        Raises a StageFailed; an OSError or EOFError if the worker ended.
        """
        requests, answers = self._pipes()
        worker.send_request(requests, make, rows)
        return worker.receive_answer(answers)

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def how_it_ended(self) -> str:
        with suppress(OSError):
            self._pipes()[0].close()
        code = self._process.wait()
        if code >= 0:
            return f"a worker process ended with code {code}"
        hint = ", as the system does where memory is short" if code == -signal.SIGKILL else ""
        return f"a worker process was ended by {signal.Signals(-code).name}{hint}"

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in self._pipes():
            with suppress(OSError):  # what was not written yet is written when a pipe is closed
                pipe.close()
