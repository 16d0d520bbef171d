# The make targets of the repository. Each installs what it needs into .venv, with the versions in constraints.txt. Required
# are git, make and Python 3.11 or newer with venv. CONTRIBUTING.md says which targets to run for which change.
#
#   make demo [KEEP=1]   install magnetar and run all parts on real input
#   make test            all tests except the long ones
#   make check           formatting, lint, types, spelling and prose
#   make fmt             format the code
#
#   make test-all        make test and make test-compiled without samples
#   make test-slow       a sample of the crash tests
#   make test-crash      all crash tests, 40 minutes
#   make test-compiled   tests of the wire protocol, the client and instances on a compiled wheel
#   make test-install [PYTHON=…]   the first commands of a new user, with Debian's Python
#   make test-pauses     the longest pauses of servers under the largest inputs, on an idle machine
#   make test-connectors sources and sinks with real servers
#   make test-spark      Spark (installs 600 MB first), sampled
#   make test-spark-all  Spark without samples
#   make test-spark-versions   each Spark from 4.0 on, with Delta and Iceberg (installs 1 GB for each)
#   make test-pulsar     our client and workers on an Apache Pulsar
#   make test-clients    the official Java, Go and Python clients on our broker and an Apache Pulsar
#   make race            random schedules in the broker, 15 minutes
#   make fuzz            hostile frames, 15 minutes
#   make soak            the broker with 400 reconnecting consumers, 10 minutes
#   make soak-functions  functions at half of the maximum rate, 30 minutes
#   make soak-stream     Spark streams over ten million rows with ten kills
#   make soak-stream-steady   Spark streams at half load, an hour
#
#   make bench [GROUP=…] rates, latency and memory
#   make bench-against BASE=<commit>   which rows are slower than in that commit
#   make bench-pulsar PULSAR=<starter>   ratios to Apache Pulsar: functions and publishing
#   make bench-kafka KAFKA=<starter>   ratios to Apache Kafka: Spark (installs 1 GB first)
#   make profiles        where time is spent
#
#   make docs            build the documentation as a site in build/site
#   make docs-connectors generate the reference pages of connectors
#   make wheel           build the sdist, and a wheel from it, in dist/
#   make wheels [PYTHONS="python3.11 …"]   build a manylinux wheel for each Python
#   make generate        compile the .proto files
#   make audit           known vulnerabilities of the libraries
#   make clean           remove everything that was installed or built

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TYPES := .types/magnetar
RUN_STAMP := $(VENV)/.installed
SOURCES := $(wildcard $(shell git ls-files '*.py' '*.json' ':!tests' ':!benchmarks' ':!examples' ':!docs' 2>/dev/null))
DEV_STAMP := $(VENV)/.installed-dev
CONNECTORS_STAMP := $(VENV)/.installed-connectors
SPARK_STAMP := $(VENV)/.installed-spark
DOCS_STAMP := $(VENV)/.installed-docs
AUDIT_STAMP := $(VENV)/.installed-audit
WHEELS_STAMP := $(VENV)/.installed-wheels
PYTEST := $(BIN)/python -m pytest
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder   # tests/support/order.py has the order
ARGS ?=
CHANCE := $(strip $(shell od -An -N4 -tu4 /dev/urandom))

# Constraints for build dependencies: pip up to 25.2 reads the first variable, later versions the second.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_BUILD_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start thousands of processes. Without cached bytecode each would compile all modules, which is half of its run time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: audit docs help demo test test-all test-slow test-crash test-pauses race fuzz soak soak-functions soak-stream soak-stream-steady test-spark test-spark-all test-spark-versions test-connectors test-compiled test-install test-pulsar test-clients pulsar-given check fmt bench profiles bench-against bench-pulsar bench-kafka kafka-given generate docs-connectors wheel wheels compiled clean tools

help:
	@sed -n '4,/^$$/s/^# \{0,3\}//p' Makefile

# Install the package as a user would, compiled if possible. An editable installation by another target is kept.
demo: $(RUN_STAMP)
	@$(BIN)/magnetar demo --directory .demo $(if $(KEEP),--keep)

# A random sample of the rows of large matrices, with a printed seed, and a fixed share of the examples of property tests.
test: export MAGNETAR_MATRIX_SHARE ?= 25
test: export MAGNETAR_MATRIX_SEED := $(or $(MAGNETAR_MATRIX_SEED),$(CHANCE))
test: export MAGNETAR_EXAMPLES_SHARE ?= 40
test: $(DEV_STAMP)
	$(PYTEST) $(PARALLEL) -m "not crash and not pulsar and not spark and not connectors and not clients and not pauses" $(ARGS)

# All rows of matrices, and all tests of compiled modules.
test-all:
	$(MAKE) test MAGNETAR_MATRIX_SHARE=100 MAGNETAR_EXAMPLES_SHARE=100
	$(MAKE) test-compiled MAGNETAR_SLOW_SHARE=100 MAGNETAR_EXAMPLES_SHARE=100

# A percentage of the rounds of each test, at least one, with a printed seed that race tests and fuzzing also use.
# Spark's rounds are included if the extra is installed, which make test-spark does.
CRASH_FILES = $(shell grep -rl "mark\.crash" tests --include="test_*.py")   # collecting all other files takes a minute
# A socket closed by the garbage collector would fail whichever test is running at that time, so it is shown as a warning.
UNCLOSED := -W default::pytest.PytestUnraisableExceptionWarning
CRASHES = $(PYTEST) $(if $(findstring tests/,$(ARGS)),,$(CRASH_FILES)) -m "crash and not pulsar$(if $(wildcard $(SPARK_STAMP)),, and not spark)" --timeout 1800 $(UNCLOSED)
test-slow: export MAGNETAR_CRASH_SHARE ?= 30
test-slow: export MAGNETAR_CRASH_SEED := $(or $(MAGNETAR_CRASH_SEED),$(CHANCE))
test-slow: export MAGNETAR_RACE_S ?= 60
test-slow: export MAGNETAR_RACE_FIRST ?= $(MAGNETAR_CRASH_SEED)
test-slow: export MAGNETAR_FUZZ_S ?= 60
test-slow: export MAGNETAR_FUZZ_SEED ?= $(MAGNETAR_CRASH_SEED)
test-slow: $(DEV_STAMP)
	$(CRASHES) $(PARALLEL) $(ARGS)

test-crash: export MAGNETAR_CRASH_SHARE := 100
test-crash: $(DEV_STAMP)
	$(CRASHES) $(ARGS)

# Seeded random schedules of all events that the broker waits for. A failure prints its seed and the last steps.
race: export MAGNETAR_RACE_S ?= 900
race: $(DEV_STAMP)
	$(PYTEST) -m crash -rA --timeout 7200 tests/races $(ARGS)

# Prints its seed; MAGNETAR_FUZZ_SEED repeats a run.
fuzz: export MAGNETAR_FUZZ_S ?= 900
fuzz: export MAGNETAR_FUZZ_SEED := $(or $(MAGNETAR_FUZZ_SEED),$(CHANCE))
fuzz: $(DEV_STAMP)
	$(PYTEST) tests/fuzz -m crash -s --timeout 7200 $(ARGS)

# Both print their seed. MAGNETAR_SOAK_SEED repeats all random decisions, MAGNETAR_SOAK_S is the duration in seconds.
soak: $(DEV_STAMP)
	$(BIN)/python -m benchmarks.soak_broker

soak-functions: $(DEV_STAMP)
	$(BIN)/python -m benchmarks.soak

# SPARK_VERSION=4.2 selects a version, in this case one with a Delta package. MAGNETAR_SOAK_ROWS and MAGNETAR_SOAK_KILLS set the
# number of rows and kills of soak-stream, and MAGNETAR_SOAK_S sets the duration of soak-stream-steady.
SOAK_SPARK := $(if $(SPARK_VERSION),$(VENV)/spark-$(SPARK_VERSION))
soak-stream soak-stream-steady: $(or $(SOAK_SPARK:%=%/installed),$(SPARK_STAMP))
	$(or $(SOAK_SPARK:%=%/bin),$(BIN))/python -m benchmarks.soak_stream$(if $(filter %-steady,$@),.steady)

# Two processes with one JVM each, as PySpark has one per process. Tests repeated on a standalone cluster and the rows of
# matrices are sampled, with a printed seed.
test-spark: export MAGNETAR_ELSEWHERE_SHARE ?= 25
test-spark: export MAGNETAR_ELSEWHERE_SEED := $(or $(MAGNETAR_ELSEWHERE_SEED),$(CHANCE))
test-spark: export MAGNETAR_MATRIX_SHARE ?= 25
test-spark: export MAGNETAR_MATRIX_SEED := $(or $(MAGNETAR_MATRIX_SEED),$(CHANCE))
test-spark: $(SPARK_STAMP)
	$(PYTEST) $(PARALLEL) tests/spark -m "spark and not crash and not pulsar and not lakes" --timeout 600 $(ARGS)

test-spark-all:
	$(MAKE) test-spark MAGNETAR_ELSEWHERE_SHARE=100 MAGNETAR_MATRIX_SHARE=100

# For each version, in a separate environment with constraints-spark-<version>.txt: reads and writes of the data source,
# functions and the session, and topics to Delta and Iceberg tables if Maven has packages for the version. SPARK_VERSIONS="4.1"
# selects a version. The seed determines the rows of the tables.
SPARK_VERSIONS ?= 4.0 4.1 4.2 4.3
SPARK_MAIN := $(addprefix tests/spark/test_,spark_version.py session.py source.py dataframes.py header_columns.py \
  entry_boundaries.py function_run.py function_run_dataframe.py function_requirements.py python_workers.py class_archive.py \
  ending.py first_line.py stream_plans.py)
SPARK_VERSION_S := 2400
# PySpark 4.0 and 4.1 leave result sockets to the garbage collector.
WARNS_4.0 := -W 'ignore:unclosed <socket:ResourceWarning'
WARNS_4.1 := $(WARNS_4.0)
test-spark-versions: export MAGNETAR_SPARK_SEED := $(or $(MAGNETAR_SPARK_SEED),$(strip $(shell od -An -N4 -tu4 /dev/urandom)))
test-spark-versions: $(SPARK_VERSIONS:%=$(VENV)/spark-%/tested)

.PRECIOUS: $(VENV)/spark-%/installed
.PHONY: $(SPARK_VERSIONS:%=$(VENV)/spark-%/tested)
$(SPARK_VERSIONS:%=$(VENV)/spark-%/tested): $(VENV)/spark-%/tested: $(VENV)/spark-%/installed
	@echo "Spark $*, MAGNETAR_SPARK_SEED=$$MAGNETAR_SPARK_SEED"
	@timeout --foreground --kill-after=30 $(SPARK_VERSION_S) $(VENV)/spark-$*/bin/python -m pytest $(PARALLEL) $(SPARK_MAIN) \
	  -m "spark and not crash and not pulsar and not lakes" --timeout 600 $(WARNS_$*) $(ARGS)
	@timeout --foreground --kill-after=30 $(SPARK_VERSION_S) $(VENV)/spark-$*/bin/python -m pytest tests/spark/test_lakes.py \
	  -m lakes -rs --timeout 900 $(WARNS_$*) $(ARGS)

# The tests start real servers on free ports. Tests of a missing server are skipped, or fail with CI=1. All tests of a server run
# in one process, which starts it once.
test-connectors: $(CONNECTORS_STAMP)
	$(PYTEST) -n 2 --dist loadgroup tests/connectors -m "connectors and not crash and not pulsar" --timeout 300 $(ARGS)

# PULSAR is a program that starts an Apache Pulsar; alternatively, MAGNETAR_TEST_PULSAR_URL and MAGNETAR_TEST_PULSAR_WEB_URL are
# the addresses of a running one. Spark's tests are skipped unless the extra is installed, which make test-spark does.
test-pulsar: export MAGNETAR_TEST_PULSAR := $(PULSAR)
test-pulsar: pulsar-given $(DEV_STAMP)
	$(PYTEST) -m "pulsar and not crash and not clients" -rs $(ARGS)

# The same scenarios with the official Java, Go and Python clients, on our broker and, if PULSAR or the two variables are set,
# on an Apache Pulsar. Tests that need Java, Maven or Go are skipped if these are missing.
test-clients: export MAGNETAR_TEST_PULSAR := $(PULSAR)
test-clients: $(DEV_STAMP)
	$(PYTEST) tests/clients -m "clients$(if $(PULSAR)$(MAGNETAR_TEST_PULSAR_URL),, and not pulsar)" -rs --timeout 600 $(ARGS)

# Prints a table. MAGNETAR_PAUSE_MS raises the limit of 250 ms, for a busy machine.
test-pauses: $(DEV_STAMP)
	$(PYTEST) -n 0 tests/pauses -m pauses -s $(ARGS)

# Builds build/site/index.html, and fails for broken links.
docs: $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "built build/site/index.html"

# Generates a page for each connector from its options.
docs-connectors: $(DEV_STAMP)
	$(BIN)/python -m tests.support.connector_pages

pulsar-given:
	@if [ -n "$(PULSAR)" ]; then command -v "$(PULSAR)" >/dev/null || \
	  { echo "make: PULSAR=$(PULSAR) cannot be executed: expected a program that starts Apache Pulsar, see docs/development/pulsar-tests.md" >&2; exit 1; }; \
	elif [ -z "$$MAGNETAR_TEST_PULSAR_URL" ]; then \
	  echo "make: no Apache Pulsar: set PULSAR=<starter>, or MAGNETAR_TEST_PULSAR_URL and MAGNETAR_TEST_PULSAR_WEB_URL of a running one" >&2; exit 1; fi

check: $(DEV_STAMP) $(TYPES)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	MYPYPATH=.types $(BIN)/mypy --exclude '/magnetar/(tests|benchmarks|examples|build|dist)/|/setup\.py' -p magnetar
	MYPYPATH=.types:. $(BIN)/mypy --explicit-package-bases tests benchmarks
	git ls-files -z ':!tests' | xargs -0 $(BIN)/codespell
	$(BIN)/python -m tests.support.prose
	$(BIN)/python -m tests.support.error_messages

# Known vulnerabilities in the versions in constraints.txt. A package that cannot be looked up is an error.
audit: $(AUDIT_STAMP)
	$(BIN)/python -m pip_audit --strict --no-deps --disable-pip --progress-spinner off --requirement constraints.txt

fmt: $(DEV_STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Measures the wheel, compiled if possible, in groups of at most 20 minutes each; GROUP=<name> selects a group. ARGS=--write
# updates RESULTS.md.
bench: compiled
	$(COMPILED)/bin/python -m benchmarks $(if $(GROUP),--group "$(GROUP)") $(ARGS)

# ARGS=functions selects a profile, ARGS=--write updates PROFILES.md.
profiles: compiled
	$(COMPILED)/bin/python -m benchmarks.profiles $(ARGS)

# Measures Apache Pulsar, with PULSAR as for test-pulsar, and Magnetar alternately. Needs Java, Maven and Go.
bench-pulsar: export MAGNETAR_TEST_PULSAR := $(PULSAR)
bench-pulsar: pulsar-given compiled
	$(COMPILED)/bin/python -m benchmarks.beside_pulsar $(ARGS)

# Measures Spark 4.0 on Apache Kafka, which KAFKA starts, and on Magnetar alternately. Needs Java and Maven.
bench-kafka: export MAGNETAR_BENCH_KAFKA := $(KAFKA)
bench-kafka: COMPILED := .compiled-spark
bench-kafka: kafka-given wheel $(VENV)/spark-4.0/installed-kafka
	@$(call compiled_into,$(VENV)/spark-4.0/bin/python)
	$(COMPILED)/bin/python -m benchmarks.beside_kafka $(ARGS)

kafka-given:
	@command -v "$(KAFKA)" >/dev/null || { echo "make: KAFKA=$(KAFKA) cannot be executed: expected a program that starts Apache Kafka, see docs/development/benchmarks.md" >&2; exit 1; }

# Measures both trees alternately. ROWS=<name,…> selects rows, a higher REPEATS=<n> narrows the intervals.
bench-against: $(DEV_STAMP)
	@[ -n "$(BASE)" ] || { echo "make: BASE is required: set BASE=<commit>" >&2; exit 1; }
	$(BIN)/python -m benchmarks.against "$(BASE)" $(if $(ROWS),--rows "$(ROWS)") $(if $(REPEATS),--repeats "$(REPEATS)") $(ARGS)

# Builds the sdist, and from it the same wheel as `pip install .`. The checkout itself is never compiled: machine code would hide
# changes to the sources of an editable installation.
wheel: $(DEV_STAMP)
	rm -rf build dist
	$(BIN)/python -m build --outdir dist
	rm -rf build

# Builds a compiled wheel for each installed interpreter, with the oldest manylinux tag that its symbols allow.
PYTHONS ?= python3.11 python3.12 python3.13 python3.14
wheels: $(WHEELS_STAMP)
	rm -rf build dist
	$(BIN)/python -m build --sdist --outdir dist
	@for python in $(PYTHONS); do \
	  $$python -c "" 2>/dev/null || { echo "make: skipping the wheel for $$python, which is not installed" >&2; continue; }; \
	  MAGNETAR_COMPILED=1 $(BIN)/python -m pip --python "$$(command -v $$python)" wheel --no-deps --wheel-dir dist/unrepaired dist/*.tar.gz || exit 1; \
	done
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m auditwheel repair --wheel-dir dist dist/unrepaired/*.whl
	rm -rf build dist/unrepaired

# An environment with the wheel instead of the checkout, and with the libraries of .venv.
COMPILED := .compiled
compiled_into = rm -rf $(COMPILED) && $(1) -m venv --without-pip $(COMPILED) && \
  site=$$($(COMPILED)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))") && \
  $(1) -c "import sysconfig; print(sysconfig.get_path('purelib'))" > $$site/libraries.pth && \
  $(1) -m zipfile -e dist/magnetar-*.whl $$site
compiled: wheel
	@$(call compiled_into,$(BIN)/python)

# All short tests and everything that encodes or decodes, and a sample of the slow tests in each file. make test runs them all on
# the sources.
test-compiled: export MAGNETAR_SLOW_SHARE ?= 30
test-compiled: export MAGNETAR_EXAMPLES_SHARE ?= 40
test-compiled: export MAGNETAR_SLOW_SEED := $(or $(MAGNETAR_SLOW_SEED),$(CHANCE))
test-compiled: compiled
	$(COMPILED)/bin/python -m magnetar --version | grep "(compiled)"
	$(COMPILED)/bin/python -m pytest $(PARALLEL) -m "not crash and not pulsar and not spark and not connectors and not clients and not pauses" \
	  tests/wire tests/client tests/instance $(ARGS)

# The first commands of a new user, with a fresh copy of the repository and a home directory with nothing but pip's settings.
test-install: PYTHON = /usr/bin/python3
test-install:
	PYTHON=$(PYTHON) .ci/test-install

generate: $(DEV_STAMP)
	PYTHON=$(CURDIR)/$(BIN)/python wire/generate.sh

clean:
	rm -rf $(VENV) .demo .compiled .compiled-spark build dist magnetar.egg-info .types .mypy_cache .ruff_cache .hypothesis .pytest_cache

# mypy derives the package name from the folder name, but a checkout may have any name: hence a link.
$(TYPES):
	@mkdir -p .types && ln -sfn .. $(TYPES)

# An editable installation registers an import finder, which type checkers do not run: mypy and pyright search the path. So the
# folder with the link is added to the path. The second line makes Python itself use the finder first, so that modules have
# their real paths.
define TYPES_PTH
$(CURDIR)/.types
import sys; sys.meta_path.sort(key=lambda finder: getattr(finder, "__name__", "") != "_EditableFinder")
endef
export TYPES_PTH
show_types = $(BIN)/python -c 'import os, sysconfig; path = sysconfig.get_path("purelib") + "/magnetar-types.pth"; \
  open(path, "w").write(os.environ["TYPES_PTH"] + "\n")'

$(RUN_STAMP): $(if $(wildcard $(DEV_STAMP)),$(DEV_STAMP),pyproject.toml constraints.txt setup.py $(SOURCES)) | $(BIN)/python
	@[ -e $(DEV_STAMP) ] || { echo "installing magnetar into $(VENV) …"; \
	  $(BIN)/python -m pip install . $(call or_fail,installing magnetar into $(VENV)); $(BIN)/magnetar --version; }
	@touch $@

$(DEV_STAMP): pyproject.toml constraints.txt | $(BIN)/python $(TYPES)
	@echo "installing magnetar and its tools into $(VENV) …"
	@$(BIN)/python -m pip install --editable '.[dev]' $(call or_fail,installing the tools into $(VENV))
	@$(show_types)
	@touch $@

$(SPARK_STAMP): $(DEV_STAMP)
	@echo "installing Spark and a Java for it into $(VENV) …"
	@$(BIN)/python -m pip install --editable '.[dev,spark]' $(call or_fail,installing the extra spark into $(VENV))
	@touch $@

# The version's constraints override those in constraints.txt.
$(VENV)/spark-%/installed: constraints-spark-%.txt constraints.txt pyproject.toml | $(TYPES) tools
	@echo "installing Spark $* and the tools into $(VENV)/spark-$* …"
	@$(PYTHON) -m venv $(VENV)/spark-$*
	@awk -F== '/^#/ { next } NR == FNR { own[$$1] = 1; print; next } !($$1 in own)' $< constraints.txt > $(VENV)/spark-$*/constraints.txt
	@PIP_CONSTRAINT=$(CURDIR)/$(VENV)/spark-$*/constraints.txt $(VENV)/spark-$*/bin/python -m pip install --editable '.[dev,spark]' \
	  $$(grep -o '^delta-spark' $<) $(call or_fail,installing Spark $* into $(VENV)/spark-$*)
	@touch $@

$(VENV)/spark-%/installed-kafka: $(VENV)/spark-%/installed
	@PIP_CONSTRAINT=$(CURDIR)/$(VENV)/spark-$*/constraints.txt $(VENV)/spark-$*/bin/python -m pip install confluent-kafka $(call or_fail,installing confluent-kafka into $(VENV)/spark-$*)
	@touch $@

$(CONNECTORS_STAMP): $(DEV_STAMP)
	@echo "installing the libraries of all connectors into $(VENV) …"
	@$(BIN)/python -m pip install --editable '.[dev,all-connectors]' 'moto[server]' $(call or_fail,installing the extra all-connectors into $(VENV))
	@touch $@

$(DOCS_STAMP): $(DEV_STAMP)
	@echo "installing the documentation tools into $(VENV) …"
	@$(BIN)/python -m pip install --editable '.[dev,docs]' $(call or_fail,installing the extra docs into $(VENV))
	@touch $@

$(AUDIT_STAMP): $(DEV_STAMP)
	@echo "installing pip-audit into $(VENV) …"
	@$(BIN)/python -m pip install --editable '.[dev,audit]' $(call or_fail,installing the extra audit into $(VENV))
	@touch $@

$(WHEELS_STAMP): $(DEV_STAMP)
	@echo "installing auditwheel into $(VENV) …"
	@$(BIN)/python -m pip install --editable '.[dev,wheels]' $(call or_fail,installing the extra wheels into $(VENV))
	@touch $@

$(BIN)/python: | tools
	@echo "creating the virtual environment $(VENV) with $$($(PYTHON) --version) …"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); $(call failed,$(PYTHON) -m venv $(VENV),venv); }

# Required programs. An error names the Debian package of a missing one.
tools:
	@$(call need,git --version,git,git)
	@$(call need,$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))',Python 3.11 or newer as $(PYTHON),python3)
	@$(call need,$(PYTHON) -c 'import ensurepip$(comma) venv',the Python module venv,python3-venv)

comma := ,
need = $(1) >/dev/null 2>&1 || { echo "make: $(2) is missing; on Debian: apt-get install $(3)" >&2; exit 1; }
failed = { echo "make: $(1) failed, see the lines above. To fix it: $(remedy_$(2))" >&2; exit 1; }
# Print pip's output only if it fails. With --quiet pip would not print which requirements conflict.
PIP_LOG = $(VENV)/pip.log
or_fail = >$(PIP_LOG) 2>&1 || { tail -n 40 $(PIP_LOG) >&2; $(call failed,$(1),pip); }
remedy_pip := check the connection to the package index and retry; make clean starts over
remedy_venv := apt-get install python3-venv, check that the disk has 500 MB free, and retry
