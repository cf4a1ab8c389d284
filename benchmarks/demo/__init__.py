"""The demonstration: many writer processes on one table of real flights, one of them killed, the result checked.

    story      who writes what: the source rows and each writer's task
    writer     one writer process
    stage      the parent: starts the writers, decides who goes when, kills one
    replay     the same changes made one after the other on plain rows, by other code
    verdict    every row compared, an independent reader asked, files counted
    show       progress and the final table

`lakelatch demo` and `make demo` run it; `make demo-cluster` runs it on

    cluster    a Spark standalone cluster, an S3 server, Redis

`make demo-streams` runs another one, of streams:

    wide_row       four sources, their events late and twice, and the join of them
    stream_job     one job
    stream_stage   the parent: kills one job, starts it again, compacts meanwhile, compares
"""
