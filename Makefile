# One word each. `make run` and `make test` do all their own set-up; `make help` lists the words.
VENV   ?= .venv
PYTHON ?= python3
PY      = $(VENV)/bin/python
PIP_INSTALL = $(PY) -m pip install --quiet --disable-pip-version-check
JOBS   ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)
WORKERS ?= 2
PORT   ?= 9092
TIMES  := build/layer-seconds.txt
SHORT_PLAYS := aborts or commits or undone_offsets

.DEFAULT_GOAL := help
.PHONY: help core build run test dist install aarch64 lint unit compat spark spark-oracle pipeline pipeline-proof campaigns fuzz sanitize embedding crash decay groups regroup storm jepsen plays transactions transcripts million crowd wireload race race-fresh race-groups race-spark race-transactions idempotence partitions upkeep micro generate annotate clean

# A layer of the test-suite: its name, then its command. The seconds of all layers are printed at the end.
define layer
	@mkdir -p build; echo "── $(1)"; start=$$(date +%s); $(2) || { echo "layer failed: $(1)"; exit 1; }; \
	printf '%-34s %5d s\n' "$(1)" $$(( $$(date +%s) - start )) >> $(TIMES)
endef

help:            ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## */\1\t/' | expand -t 19

# The runtime and the compiler's tools: what `make run` needs. The core is compiled once, by the target `core`.
$(VENV)/.runtime: pyproject.toml
	@echo "[1/4] creating the Python environment in $(VENV)"
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@echo "[2/4] installing Cython and the runtime dependencies"
	@$(PIP_INSTALL) "setuptools>=77" "Cython>=3.1"
	@KBROKER_SKIP_CORE=1 $(PIP_INSTALL) --no-build-isolation --editable .
	@touch $@

# The test extra: clients, PySpark, pytest, mypy, ruff.
$(VENV)/.ready: $(VENV)/.runtime
	@echo "installing the test extra (PySpark is 400 MB)"
	@KBROKER_SKIP_CORE=1 $(PIP_INSTALL) --no-build-isolation --editable '.[test]'
	@touch $@

core: $(VENV)/.runtime
	@ls kbroker/_core/core.*.so >/dev/null 2>&1 || echo "[3/4] compiling the core (about a minute on two cores)"
	@$(PY) setup.py --quiet build_ext --inplace
	@$(PY) -m compileall -q kbroker  # as pip does: an environment may forbid it to the first start

build: core $(VENV)/.ready  ## the compiled core, in place, and the test extra

run: core        ## a broker on localhost:9092 (PORT=… for another)
	@echo "[4/4] starting the broker"
	@exec $(VENV)/bin/kbroker start --listeners PLAINTEXT://127.0.0.1:$(PORT)

test:            ## everything: build, lint, unit, compat, Spark, short campaigns
	@rm -f $(TIMES)
	$(call layer,build,$(MAKE) --no-print-directory build)
	$(call layer,install in an empty environment,$(MAKE) --no-print-directory install)
	$(call layer,lint (ruff and mypy),$(MAKE) --no-print-directory lint)
	$(call layer,unit and property,$(MAKE) --no-print-directory unit)
	$(call layer,portable build,$(MAKE) --no-print-directory portable-short)
	$(call layer,compat (real clients and Apache),$(MAKE) --no-print-directory compat)
	$(call layer,spark,$(MAKE) --no-print-directory spark)
	$(call layer,campaigns (fuzz, crash, groups, transactions),$(MAKE) --no-print-directory campaigns)
	@echo "── seconds per layer"; cat $(TIMES)

dist:            ## the sdist, and manylinux wheels for x86_64 and aarch64 for each CPython found here (ONLY=3.11 MACHINE=aarch64)
	$(PYTHON) .ci/dist.py $(if $(ONLY),--only $(ONLY)) $(if $(MACHINE),--machine $(MACHINE))

install:         ## the sdist, and the wheel where no compiler works, in empty environments (COMPILE=1: the sdist by `cc`)
	$(PYTHON) .ci/dist.py --machine $$(uname -m) --only $$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
	rm -rf build/empty && $(PYTHON) compat_tests/packages.py . $(if $(COMPILE),--compile)

aarch64:         ## the aarch64 wheel under qemu: its broker answers a client, then the unit layer (ONLY=3.13, or 3.11)
	$(PYTHON) .ci/dist.py --machine aarch64 --only $(or $(ONLY),3.11)
	$(PYTHON) .ci/aarch64.py --python $(or $(ONLY),3.11) --jobs $(JOBS)

lint: build      ## ruff and mypy, strict
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

unit: build      ## unit, golden, property and tidy tests
	$(PY) -m pytest kbroker/tests bench/campaigns bench/test_picture.py -n $(JOBS)

compat: build    ## real clients; every scenario also on Apache Kafka
	$(PY) -m pytest compat_tests --ignore compat_tests/spark --write-table -n $(WORKERS)

spark: build     ## PySpark through format("kafka"): every scenario on kbroker, the connector, the fixtures, the pipeline
	$(PY) -m pytest compat_tests/spark spark_integration --brokers kbroker

spark-oracle: build  ## the same scenarios on Apache Kafka too, compared
	$(PY) -m pytest compat_tests/spark --write-table

pipeline: build  ## EVENTS=… through the Spark pipeline on a broker of its own, then its books (MASTER=… for a cluster)
	$(PY) -m spark_integration.pipeline.demo --events $(or $(EVENTS),20000) $(if $(MASTER),--master $(MASTER))

pipeline-proof: build  ## EVENTS=… through it while Spark and the broker are killed, then on a standalone cluster (SEED=…)
	$(PY) -m spark_integration.tests.proof --events $(or $(EVENTS),100000) $(if $(SEED),--seed $(SEED))

campaigns: build ## short runs of the slow campaigns
	$(PY) -m bench.campaigns.fuzz --frames 40000 --seed 1
	$(PY) -m bench.campaigns.embedding --brokers 100 --combinations 8 --seed 1
	$(PY) -m bench.campaigns.crash --cycles 8 --seed 1
	$(PY) -m bench.campaigns.decay --rounds 16 --seed 1
	$(PY) -m bench.campaigns.regroup --cycles 6 --seed 1
	$(PY) -m bench.campaigns.storm --seconds 2 --members 30 --groups 60 --seed 1
	$(PY) -m bench.campaigns.jepsen --seconds 20 --seed 1
	$(PY) -m pytest bench/campaigns/jepsen/plays.py -k '$(SHORT_PLAYS)'

fuzz: build      ## attacks by name, then FRAMES=… mutated requests through real sockets (SEED=…)
	$(PY) -m bench.campaigns.fuzz --frames $(or $(FRAMES),2000000) $(if $(SEED),--seed $(SEED))

sanitize: build  ## INPUTS=… for the parsers and FRAMES=… through sockets, under gcc's ASan and UBSan (SEED=…)
	mkdir -p build/sanitized
	tar -c --exclude='*.so' --exclude=__pycache__ kbroker bench setup.py pyproject.toml README.md LICENSE \
		| tar -x -C build/sanitized
	cd build/sanitized && KBROKER_SANITIZE=1 $(abspath $(PY)) setup.py --quiet build_ext --inplace
	$(PY) -m bench.campaigns.sanitized --inputs $(or $(INPUTS),2000000) --frames $(or $(FRAMES),200000) \
		$(if $(SEED),--seed $(SEED))

embedding: build ## BROKERS=… in one process, then COMBINATIONS=… of hosts that fork, spawn and die (SEED=…)
	$(PY) -m bench.campaigns.embedding --brokers $(or $(BROKERS),1000) --combinations $(or $(COMBINATIONS),200) $(if $(SEED),--seed $(SEED))

# Tests that read the checkout itself (its git index, its packages) say nothing about the core and are left out.
PORTABLE = cd build/portable && .venv/bin/python -m
PORTABLE_PYTEST = $(PORTABLE) pytest -p no:cacheprovider --ignore kbroker/tests/test_tidy.py --ignore kbroker/tests/unit/test_packaging.py --ignore compat_tests/test_dockerfile.py

.PHONY: portable portable-short macos
portable: build  ## the core without Linux's own system calls, as on macOS, through unit, compat and FRAMES=… of fuzzing
	$(PY) .ci/portable.py
	$(PORTABLE_PYTEST) kbroker/tests bench/campaigns bench/test_picture.py -n $(JOBS)
	$(PORTABLE) bench.campaigns.fuzz --frames $(or $(FRAMES),40000) --seed 1
	$(PORTABLE_PYTEST) compat_tests --ignore compat_tests/spark -n $(WORKERS)

portable-short: build  ## the part of it that `make test` runs: network, log files, real clients, fuzzing, macOS's headers
	$(PY) .ci/portable.py
	$(PORTABLE_PYTEST) $(addprefix kbroker/tests/,unit/net unit/core unit/log/test_reopening.py unit/log/test_append_and_read.py integration/test_clients.py) -n $(JOBS)
	$(PORTABLE) bench.campaigns.fuzz --first-round 1 --frames 4000 --seed 1
	$(PY) .ci/macos.py --quick

macos: build     ## every C file of the core compiled against macOS's headers, and its Python checked by mypy for macOS
	$(PY) .ci/macos.py
	$(PY) -m mypy --platform darwin kbroker

crash: build     ## CYCLES=… of kill -9 under acks=all load, reopened and judged (SEED=…)
	$(PY) -m bench.campaigns.crash --cycles $(or $(CYCLES),200) $(if $(SEED),--seed $(SEED))

decay: build     ## ROUNDS=… data directories damaged at random, served or refused, judged by Apache (SEED=…)
	$(PY) -m bench.campaigns.decay --rounds $(or $(ROUNDS),300) --apache $(if $(SEED),--seed $(SEED))

groups: build    ## SEEDS=… of the simulation of groups, with clients that crash, stall, ask twice and lie (SEED=… for one)
	$(PY) -m kbroker.tests.simulation.classic_groups $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),10000))
	$(PY) -m kbroker.tests.simulation.consumer_groups $(if $(SEED),--first $(SEED) --seeds 1,--seeds $(or $(SEEDS),10000))
	$(PY) -m kbroker.tests.simulation.mixed_groups $(if $(SEED),--first $(SEED) --seeds 1,--seeds $(or $(SEEDS),10000))

regroup: build   ## CYCLES=… of kill -9 in mid-rebalance and mid-commit, both protocols; groups find together (SEED=…)
	$(PY) -m bench.campaigns.regroup --cycles $(or $(CYCLES),100) $(if $(SEED),--seed $(SEED))

storm: build     ## 100 members of one group, then 500 groups, come and go for SECONDS=… each, both protocols (SEED=…)
	$(PY) -m bench.campaigns.storm --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED))

jepsen: build    ## SECONDS=… of transactions under every trouble, judged by what their clients saw (SEED=…)
	$(PY) -m bench.campaigns.jepsen --seconds $(or $(SECONDS),3600) $(if $(SEED),--seed $(SEED))

plays: build     ## the same in short, on a broker with one guarantee off at a time: the checker must object
	$(PY) -m pytest bench/campaigns/jepsen/plays.py -rP

transactions: build  ## SEEDS=… of the simulation of transactions, with a crash at every step of their ends (SEED=… for one)
	$(PY) -m kbroker.tests.simulation.transactions $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),10000))

transcripts: build  ## the transcripts of state machines, written anew; the diff is the review
	$(PY) -m kbroker.tests.transcripts.script
	$(PY) -m kbroker.tests.transcripts.txn_script

million: build   ## a million records through every client and codec
	$(PY) -m compat_tests.million

crowd: build     ## 100 producers and 100 consumers for a minute
	$(PY) -m compat_tests.crowd

wireload: build
	@$(VENV)/bin/cythonize --quiet --inplace bench/wireload.pyx bench/wirelatency.pyx bench/wirefloor.pyx

race: wireload   ## kbroker against Apache Kafka on the same machine, interleaved; ROUNDS=… ONLY=…
	$(PY) -m bench.race $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(ONLY),--only '$(ONLY)')

race-groups: wireload  ## the group coordinators of kbroker and Apache Kafka; ROUNDS=… ONLY=…
	$(PY) -m bench.race --groups --warm-minutes 1 --rounds $(or $(ROUNDS),3) $(if $(ONLY),--only '$(ONLY)')

race-transactions: wireload  ## transactions on kbroker and Apache Kafka: throughput and commit latency; ROUNDS=… ONLY=…
	$(PY) -m bench.race --transactions --warm-minutes 1 --rounds $(or $(ROUNDS),3) $(if $(ONLY),--only '$(ONLY)')

race-fresh: wireload  ## kbroker and Apache Kafka in memory that the machine has never touched; ROUNDS=… ONLY=…
	$(PY) -m bench.race --fresh --warm-minutes 1 --rounds $(or $(ROUNDS),5) $(if $(ONLY),--only '$(ONLY)')

race-spark: wireload  ## Spark reads a million records of 100 B and of 1 KiB from each in turn; ROUNDS=…
	$(PY) -m bench.spark $(if $(ROUNDS),--rounds $(ROUNDS))

idempotence: build ## what a producer id costs in the broker's CPU; PAIRS=…
	$(PY) -m bench.idempotence $(if $(PAIRS),--pairs $(PAIRS))

partitions: wireload  ## 5,000 partitions on kbroker and on Apache Kafka: starts, memory, open files; ROUNDS=…
	$(PY) -m bench.partitions $(if $(ROUNDS),--rounds $(ROUNDS))

upkeep: wireload ## produce latency while kbroker and Apache Kafka compact and delete; ROUNDS=…
	$(PY) -m bench.upkeep $(if $(ROUNDS),--rounds $(ROUNDS))

micro: build     ## pytest-benchmark on single rooms
	$(PY) -m pytest bench/micro --benchmark-only

generate: $(VENV)/.ready  ## messages, records and errors from the schemas
	$(PY) -m kbroker.protocol.generate

annotate:        ## Cython's annotated HTML, to read hot functions for Python calls
	KBROKER_ANNOTATE=1 $(PY) setup.py --quiet build_ext --inplace --force

clean:           ## everything that was built here
	rm -rf build dist *.egg-info .venv
	find kbroker -name '*.so' -delete
	find kbroker/_core -name '*.c' ! -path 'kbroker/_core/c/*' -delete
