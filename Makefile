# Two commands are all a newcomer needs: `make demo` and `make test`.
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARGS ?=
PYTEST := $(BIN)/python -m pytest -q
NICE := nice -n 10
# Hundreds of processes are started: each would compile all of the package and of its tests again.
unexport PYTHONDONTWRITEBYTECODE
# Prints how long each stage took.
STAGES := $(BIN)/python scripts/at_once.py

.PHONY: help venv announce demo demo-cluster demo-streams demo-neighbours test test-fast thorough test-spark test-jvm extras matrix-spark soak weather weather-night mutants lint types bench bench-docs docs dist clean

help:
	@echo "make demo       many writers, one table, one killed, all checked (ARGS=\"--writers 8 --rows 50000 --seed 7\")"
	@echo "make demo-cluster  the same on a Spark cluster, the table in S3, the lock in Redis; a driver and an executor killed"
	@echo "make demo-streams  four jobs fill one wide row at once, one killed, compared with the join (ARGS=\"--plain --rows 0\")"
	@echo "make demo-neighbours  two JVM jobs of Hudi, PySpark and plain Python on one table, one of each side killed"
	@echo "make test       lint, types and all tests; installs what they need, and says first what of the system's (SYSTEM_PACKAGES=no: none)"
	@echo "make test-fast  the tests without Spark and the JVM reader"
	@echo "make thorough   the tests again, with whole enumerations where make test takes a part (tests/thorough.py)"
	@echo "make test-jvm   the tests with the JVM Hudi reader alone"
	@echo "make extras     the wheel with each extra alone, lowest and newest versions, Python 3.11 to 3.13 (ARGS=\"--extra redis\")"
	@echo "make matrix-spark  the core of the Spark tests with PySpark 3.5, 4.0, 4.1 and 4.2 (ARGS=\"--spark 4.0\")"
	@echo "make soak       simulated schedules and random tables of new seeds (SECONDS=600 STORIES=510 SEED=1 KEEPERS=1)"
	@echo "make weather    as root: real servers and writers cut off, stopped, killed (WEATHER=120 SEED=1 ARGS=\"--lock zookeeper\")"
	@echo "make weather-night  the same for HOURS=8 in slices; an interrupted night goes on where it was (ARGS=\"--stores s3\"); FUZZ=3600: then each decoder for so long (pip install atheris)"
	@echo "make mutants    breaks each rule of the protocol; the simulator has to notice"
	@echo "make bench      the short benchmarks (docs/benchmarks.md tells of the long ones)"
	@echo "make bench-docs FOLDER=dir on a disk: measures contention for twenty minutes, writes docs/contention.md"
	@echo "make docs       the site from docs/ in build/site, without warnings"
	@echo "make venv       make $(VENV) with the package (editable), every extra and the development tools"
	@echo "make dist       wheel, sdist and bill of materials (CycloneDX) in dist/"
	@echo "make clean      remove what was built; keeps $(VENV) and .cache"

venv: $(STAMP)

# PYTHON=python3.12 names the interpreter; otherwise the first of 3.11 or newer is taken.
$(STAMP): pyproject.toml scripts/make_venv.sh scripts/lock/build.txt scripts/lock/dev.txt
	@PYTHON="$(PYTHON)" scripts/make_venv.sh $(VENV)
	@touch $@

demo: venv
	@scripts/ensure_tools.sh java
	@$(BIN)/python -m lakelatch.demo.commands flights $(ARGS)

demo-cluster: venv
	@scripts/ensure_tools.sh cluster
	@PATH="$(CURDIR)/.cache/tools/bin:$$PATH" $(BIN)/python -m lakelatch.demo.commands cluster --s3a .cache/tools/s3a/jars $(ARGS)

demo-streams: venv
	@scripts/ensure_tools.sh java
	@$(BIN)/python -m lakelatch.demo.commands streams $(ARGS)

demo-neighbours: venv
	@scripts/ensure_tools.sh java
	@scripts/ensure_jvm.sh
	@$(BIN)/python -m lakelatch.demo.commands neighbours $(ARGS)

# All lanes share the machine, so that some compute while others wait. Those that compute have the lower priority: they
# must not keep a test that measures how soon something happens from its moment. At most so many at once: several have
# JVMs of their own. Those that need no tools come first, and run while they are installed; then those that wait, that
# others may compute meanwhile, and the longest.
test: announce lint
	$(STAGES) --at-most 6 $(OCC) $(FAST) $(TYPES) $(TOOLS) $(WAITING) $(SPARK) $(JVM) $(CLUSTER) $(STARTING)

# What the lanes install of the system is said before anything is.
announce:
	@scripts/ensure_tools.sh announce

test-fast: venv
	$(STAGES) $(FAST) $(OCC) $(STARTING) $(WAITING)

thorough: venv
	@scripts/ensure_jvm.sh peers
	THOROUGH=1 $(MAKE) test

# The lanes. Without Java: tests that wait for servers and processes, in two runs, and those that compute, in three; one of
# these starts programs in most tests.
# Spark and the JVM: each looks only into the folders that have such tests (tests/test_lanes.py sees to that); those on
# a cluster mostly wait.
LOCKS := tests/locks tests/cli/test_locks.py
SERVERS := tests/test_glue.py tests/process tests/server tests/storage tests/weather tests/occ/scan/test_scan.py tests/occ/table/test_requests.py tests/occ/landing/test_coordinator.py
PURE := -m "not spark and not jvm" -p no:cacheprovider
WAITING := 'locks: $(PYTEST) $(PURE) $(LOCKS)' 'servers: $(PYTEST) $(PURE) $(SERVERS)'
OCC := 'occ: $(NICE) $(PYTEST) $(PURE) $(addprefix --ignore=,$(SERVERS)) tests/occ'
PROGRAMS := tests/bench tests/cli tests/demo tests/docs tests/packaging
STARTING := 'programs: $(NICE) $(PYTEST) $(PURE) $(addprefix --ignore=,$(LOCKS)) $(PROGRAMS)'
FAST := 'fast: $(NICE) $(PYTEST) $(PURE) $(addprefix --ignore=,$(LOCKS) $(SERVERS) $(PROGRAMS) tests/occ)'
TYPES := 'types: $(NICE) $(BIN)/mypy'
TOOLS := 'tools!: bash -c "scripts/ensure_tools.sh all && scripts/ensure_jvm.sh"'

WITH_CLUSTER := tests/spark/test_cluster.py tests/demo/test_demo_cluster.py
WITH_SPARK := tests/spark tests/demo tests/docs tests/differential tests/bench
WITH_JVM := tests/jvm tests/differential tests/demo
SPARK := 'Spark: $(NICE) $(PYTEST) -m spark -p no:cacheprovider $(addprefix --ignore=,$(WITH_CLUSTER)) $(WITH_SPARK)'
JVM := 'JVM: $(NICE) $(PYTEST) -m "jvm and not spark" -p no:cacheprovider $(WITH_JVM)'
CLUSTER := 'cluster: nice -n 5 $(PYTEST) -m spark -p no:cacheprovider $(WITH_CLUSTER)'

test-spark: venv
	@scripts/ensure_tools.sh java
	$(PYTEST) -m spark $(WITH_SPARK)

test-jvm: venv
	@scripts/ensure_jvm.sh
	$(PYTEST) -m jvm

# Downloads what it installs, so it is no part of `make test`, which has a quick one of it.
extras: venv
	@scripts/ensure_tools.sh all
	$(BIN)/python -m tests.packaging.extras $(ARGS)

# Some 500 MB for each version of PySpark, so it is no part of `make test` either.
matrix-spark: venv
	@scripts/ensure_tools.sh java
	$(BIN)/python -m tests.packaging.spark_versions $(ARGS)

# docs/simulation.md. Both end with an error when something is found, or not found.
SECONDS ?= 60
STORIES ?= 510
soak: venv
	$(BIN)/python -m tests.simulation.soak $(SECONDS) $(if $(SEED),--seed $(SEED)) $(if $(KEEPERS),--keepers) $(if $(STREAMS),--streams) $(if $(NEIGHBOURS),--neighbours) $(if $(SEVERAL),--several)
	$(BIN)/python -m tests.fuzz $(SECONDS)
	@scripts/ensure_tools.sh java
	$(BIN)/python -m tests.differential $(STORIES) --spark 10 $(if $(SEED),--seed $(SEED))

# Network namespaces, so as root on Linux. docs/simulation.md.
weather: venv
	@scripts/ensure_tools.sh all
	$(BIN)/python -m tests.weather --seconds $(or $(WEATHER),120) $(if $(SEED),--seed $(SEED)) $(ARGS)

weather-night: venv
	@scripts/ensure_tools.sh all
	$(BIN)/python -m tests.weather.night --hours $(or $(HOURS),8) $(ARGS)
	$(if $(FUZZ),$(BIN)/python -m tests.fuzz.coverage $(FUZZ))

mutants: venv
	$(BIN)/python -m tests.simulation.hunt

lint: venv
	$(STAGES) 'lint: $(BIN)/ruff check .' 'format: $(BIN)/ruff format --check .'

types: venv
	$(STAGES) $(TYPES)

bench: venv
	$(BIN)/lakelatch bench appends partitions counter --writers 1,4,16 --seconds 6 --peer delta-rs
	$(BIN)/python -m benchmarks.commits.commit_latency --history 1000
	@scripts/ensure_tools.sh all
	-$(BIN)/python -m benchmarks.locks.floors_and_faults --processes 8 --hold 0,5 --seconds 3 --peers

# On a quiet machine, with a folder on its disk.
bench-docs: venv
	@test -d "$(FOLDER)" || { echo "make bench-docs FOLDER=dir: name a folder on the disk that shall be measured"; exit 2; }
	$(BIN)/python -m benchmarks.contention --folder "$(FOLDER)" $(ARGS)

docs: venv
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q
	@echo "build/site/index.html"

dist: venv
	$(BIN)/python -m build --no-isolation
	PYTHONWARNINGS=ignore $(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --mc-type library --output-reproducible --validate \
		-o dist/lakelatch.cdx.json scripts/lock/runtime.txt

clean:
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -not -path './.cache/*' -prune -exec rm -rf {} +
