"""Weather: real servers and writers on hosts of their own, whose network, clocks, disks and processes fail by a seed.

    python -m tests.weather --seconds 120 --seed 1 [--lock redis|zookeeper|file|store] [--store s3|disk] [--page FILE]

`hosts` makes the hosts, `servers` the servers, `writer` is a process that writes, `faults` what befalls them, `judge` says
what held, and `page` draws it.
"""
