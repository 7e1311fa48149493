"""Measures ours and its peers side by side; every figure is a ratio of two runs that followed each other.

``kernels``, ``resync``, ``job``, ``broker``, ``watch``, ``memory``, ``slices``, ``planning``, ``startup``
(and with ``--size full`` ``growth``) are the parts: ``python -m benchmarks.<part>`` runs one alone,
``python -m benchmarks.bench`` all of them.
Results go to ``benchmarks/latest.json``, the plot to ``benchmarks/latest.png``; what a part makes to measure
with lies in ``benchmarks/work`` and is used again.

``harness`` runs the pairs and says what a result is, ``report`` prints, stores and draws, ``segments`` makes
the data, ``kafka`` runs Kafka's own library, ``job_server`` keeps a warm Spark session in its own process.
"""
