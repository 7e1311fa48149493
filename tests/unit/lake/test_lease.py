"""Who holds the lock of a lake in a store: jobs on it are in ``test_object_store``."""

from __future__ import annotations

import subprocess
import sys

from kafka_log_lake.pipelines.lake.lease import has_ended, process_of


def test_a_process_of_this_machine_has_ended_once_it_was_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        seen = process_of(child.pid)
        assert not has_ended(seen)
        assert has_ended(seen | {"started": "1"})  # another one had its number
        child.kill()
        child.wait()
        assert has_ended(seen)
        assert not has_ended(seen | {"place": "another machine"})
    assert not has_ended({})
