# Everything a person types. `make` alone prints this list.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
# Setup leaves the compiling of modules to their first import. Images often forbid Python to keep what it compiled
# (PYTHONDONTWRITEBYTECODE): each of the hundred processes of the tests would then compile what it imports
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
PY := $(VENV)/bin/python
SUBMIT := $(VENV)/bin/spark-submit --master 'local[*]'
COMMAND := $(VENV)/bin/kafka-log-lake
PACKAGES := $(VENV)/.packages
READY := $(VENV)/.ready
LAKE ?= lake
FUZZ_SECONDS ?= 600
FUZZ_SEED ?=
SIDE_BY_SIDE := -n 2 --dist loadfile --no-loadscope-reorder
# A change draws a third of the examples of tests that draw many
PART := KLL_EXAMPLES=3
TESTS := tests/unit tests/feature tests/oracle tests/property
# The tests of the decoder alone: they start no Spark
DECODER_TESTS := tests/unit/kernels tests/unit/decoder tests/unit/format

# The log directory of a small shop: tests/data/README.md
SHOP := tests/data/shop
SOURCES := --source $(SHOP)
# Segments of every magic and codec, transactions, compaction, and files damaged by hand
CORPUS := tests/data/corpus
SAMPLES := v0-codec-* v1-codec-* v2-codec-* mixed-magic v2-txn-* v2-compacted v2-headers v2-nulls v2-timestamps
DAMAGED := bitflip-* trunc-mid-* header-count-huge-* magic-3-* random-bytes-* zstd-corrupt-middle-*
SAMPLED := $(foreach s,$(SAMPLES),--source '$(CORPUS)/$(s)') $(foreach s,$(DAMAGED),--source '$(CORPUS)/hostile/$(s)')

.PHONY: help setup run samples spark check test test-environment test-all texts test-bounds fuzz soak definitions sql report report-check docs docs-version notebooks bench bench-full package wheel release audit lint fmt clean lock

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY)  ## the environment alone: .venv from the lock file, Delta jars

$(PACKAGES): requirements.lock tools/setup.sh
	@PYTHON='$(PYTHON)' tools/setup.sh
	@touch $@

$(READY): $(PACKAGES) tools/spark_ready.py udfs/decoder/compile_kernels.py conf/log4j2.properties
	@echo "setup: compiling the kernels, resolving the Delta jars" >&2
	@$(PY) -m kafka_log_lake.udfs.decoder.compile_kernels & kernels=$$!; trap "kill $$kernels 2>/dev/null || true" EXIT; \
	    $(PY) -m tools.spark_ready; wait $$kernels
	@touch $@

run: setup  ## the logs of a small shop: decodes them into ./lake (LAKE=folder), says what is wrong, asks two questions
	@$(COMMAND) decode $(SOURCES) --lake $(LAKE)
	@echo; echo "What sells best? Values are Avro: their schemas lie in the same logs"
	@$(COMMAND) query --lake $(LAKE) "SELECT value.item, count(*) AS orders, sum(value.amount) AS revenue \
	    FROM typed.orders GROUP BY 1 ORDER BY revenue DESC LIMIT 3"
	@echo; echo "What is lost, and where does a consumer continue?"
	@$(COMMAND) query --lake $(LAKE) "SELECT topic, partition, first_lost, last_lost, cause, next_offset FROM lost_offsets"
	@echo; echo "Next:"
	@echo "  make sql       a SQL shell on these tables"
	@echo "  make report    a page on their quality"
	@echo "  $(COMMAND) scan /var/lib/kafka/data    your own logs, which are only read"

samples: LAKE := lake-samples
samples: setup  ## decodes segments of every format, and damaged ones, into ./lake-samples: docs/views.md asks about them
	@$(COMMAND) decode $(SAMPLED) --lake $(LAKE)

spark: LAKE := lake-spark
spark: setup  ## the flow in Spark, by spark-submit: raw bytes into the lake (LAKE=folder), decoded from there, one query
	@$(SUBMIT) pipelines/ingest_raw.py --read binary $(SOURCES) --lake $(LAKE)
	@$(SUBMIT) pipelines/decode_batches.py --from-raw --lake $(LAKE)
	@$(SUBMIT) pipelines/query/__main__.py --engine spark --lake $(LAKE) "SELECT magic, compression, status, count(*) AS batches, sum(record_count) AS records FROM batches GROUP BY ALL ORDER BY ALL"

check: setup  ## lint, types, and a sample of the tests that start no Spark: an answer within two minutes
	@$(VENV)/bin/ruff check --quiet .
	@$(VENV)/bin/ruff format --quiet --check .
	@$(VENV)/bin/mypy --no-error-summary & types=$$!; \
	    $(PY) -m pytest -q --quick $(SIDE_BY_SIDE) tests/unit tests/feature; wait $$types

test: setup  ## the tests of the code, two files at a time: what CI runs, in some twelve minutes
	@$(PART) $(PY) -m pytest $(SIDE_BY_SIDE) $(TESTS)

test-environment: setup  ## the tests with Spark, Connect, brokers, stores and wheels: before a release, and where their subject changed
	@$(PY) -m pytest $(SIDE_BY_SIDE) tests/environment

test-all: setup  ## every test, and all examples of those that draw
	@$(PY) -m pytest $(SIDE_BY_SIDE)

texts: setup  ## writes tests/data/texts anew, what each command prints: where words of a text were changed
	@$(PY) -m pytest -q --write-texts tests/feature/test_printed_texts.py

test-bounds: $(PACKAGES)  ## a sample of the decoder's tests again, with every index of a kernel checked
	@$(PART) NUMBA_BOUNDSCHECK=1 $(PY) -m pytest -q --quick $(DECODER_TESTS)

fuzz: setup  ## changed and made-up input for FUZZ_SECONDS (600); FUZZ_SEED=n repeats a run
	@$(PY) -m tests.fuzz.run --seconds $(FUZZ_SECONDS) $(FUZZ_SEED:%=--seed %)
	@$(PY) -m tests.fuzz.written $(FUZZ_SEED:%=--seed %)

sql: setup  ## a SQL shell on the lake (LAKE=folder), tables and views by name
	@$(COMMAND) sql --lake $(LAKE)

report: setup  ## data quality of the lake (LAKE=folder): quality-report/quality.html, and the table quality_metrics
	@$(COMMAND) quality-report --lake $(LAKE) --output quality-report --fail-on never

report-check: report  ## opens the page in a headless Chromium, which the system must have; writes screenshots
	@$(PY) -m tools.check_report quality-report/quality.html

docs: $(PACKAGES)  ## the documentation as a site, in build/site: searchable, without the network
	@tools/docs.sh

docs-version: $(PACKAGES)  ## the site of this release beside those of earlier ones, in the local branch gh-pages
	@tools/docs.sh version

notebooks: setup  ## the notebooks as .ipynb, in build/notebooks
	@$(PY) -m tools.notebooks build/notebooks

soak: setup  ## logs change and jobs die at random, tables are compared (SOAK_STEPS=2000, SOAK_KILLS=50, SOAK_SEED)
	@SOAK_STEPS='$(SOAK_STEPS)' SOAK_SEED='$(SOAK_SEED)' $(PY) -m tests.soak.life
	@SOAK_KILLS='$(SOAK_KILLS)' SOAK_SEED='$(SOAK_SEED)' $(PY) -m tests.soak

definitions: setup  ## Kafka's message definitions anew, from its jars; fails where the registry has a newer release
	@$(PY) -m tools.message_definitions

bench: setup  ## the benchmarks, as ratios against peers on the same machine
	@$(PY) -m benchmarks.bench

bench-full: setup  ## the same over larger segments
	@$(PY) -m benchmarks.bench --size full

package: setup  ## dist/: the wheel, a zip and an environment for the executors of a cluster
	@$(PY) -m tools.package

wheel: setup  ## dist/: the wheel alone
	@$(PY) -m tools.package wheel

release: setup  ## dist/: what a release consists of: wheel, sdist, bill of materials, licences, checksums; checks them
	@$(PY) -m tools.release

audit: setup  ## known vulnerabilities of what the lock file names
	@$(PY) -m tools.audit

lint: $(PACKAGES)  ## ruff and mypy over sources and tests
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy

fmt: setup  ## formats what ruff can
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

lock: setup  ## makes requirements.lock from pyproject.toml again, with the newest versions it allows
	@$(VENV)/bin/uv pip compile pyproject.toml --extra spark --extra connect --extra report --extra notebooks --extra typed --extra lineage --extra fsspec --extra browse --extra export --extra mcp --extra tier --extra restore --group dev --universal --generate-hashes --no-annotate \
	    --upgrade --custom-compile-command 'make lock' --quiet --output-file requirements.lock
	@$(VENV)/bin/uv pip compile docs/requirements.in --universal --python-version 3.11 --generate-hashes --no-annotate \
	    --upgrade --custom-compile-command 'make lock' --quiet --output-file docs/requirements.lock

clean:  ## removes the sample lake, its report, caches and build output; keeps .venv
	@rm -rf lake lake-spark lake-samples quality-report build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis benchmarks/work
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
