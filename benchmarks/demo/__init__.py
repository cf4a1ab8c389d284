"""The demonstrations: many writer processes on one table of real flights, one of them killed, the result checked.

    commands   `lakelatch demo`, `make demo`, `make demo-cluster`, `make demo-streams`, `make demo-neighbours`
    story      the source rows and each writer's task
    writer     one writer process
    stage      the parent: starts the writers, decides who goes when, kills one
    verdict    every row compared with a serial replay, an independent reader asked, files counted
    show       progress and the final table
    cluster    a Spark standalone cluster, an S3 server, Redis

The one of streams has its own story and parent:

    wide_row       four sources, their events late and twice, and the join of them
    stream_stage   kills one job, starts it again, compacts meanwhile, compares

The one of JVM writers beside ours:

    neighbours   its parent, writers and verdict
    hudi_job     a JVM job, run by a Python with PySpark 3.5
"""
