"""The entry point of ``kafka-log-lake``, ``python -m kafka_log_lake`` and ``python -m pipelines.<room>``."""

from __future__ import annotations

from kafka_log_lake.pipelines.cli.process import end_undisturbed, set_up_process


def script(command: str = "") -> None:
    """Runs the command that ``sys.argv`` names; with ``command`` its arguments are in ``sys.argv``.

    A wheel task of Databricks calls it as a function. Raises SystemExit with the code of a failure; after a
    success it returns, as SystemExit(0) would be one more exception there.
    """
    set_up_process()
    from kafka_log_lake.pipelines.cli.program import main  # takes time: Ctrl-C has to be quiet by now

    try:
        code = main(command=command)
    finally:
        end_undisturbed()
    if code:
        raise SystemExit(code)


if __name__ == "__main__":
    script()
