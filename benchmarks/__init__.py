"""Measure what `lakelatch bench` does not, because nobody contends there or because it must be held against something else.

    spark      Spark's data path against plain Parquet writes and JVM Hudi: what counts there is rows and memory, not conflicts
    verbs      loads, upserts and reads in plain Python against delta-rs and PyArrow, with rows in millions
    commits    one commit by itself: against the floor of raw puts, against 10,000 others, with 100,000 file groups
    locks      each lock against the cheapest correct use of its server, and what it does when server or holder fail

Contention of writers is measured by scenarios of the lab (docs/bench.md). These run from the root: ``python -m
benchmarks.verbs.read``.
"""
