# One target per intent. `make test` on a fresh clone does all the set-up.
# Python 3.11, 3.12 or 3.13: the first that is here, or the one you name: `make test PYTHON=python3.13`.
PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3,$(if $(shell $(name) --version 2>/dev/null),$(name))))
# Each has an environment of its own; that of the first is .venv.
VENV   := .venv$(if $(filter-out undefined file,$(origin PYTHON)),-$(notdir $(PYTHON)))
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# Compiled modules are kept, whatever the environment says: a broker process imports 360 of ours, and tests start
# hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=

# Four workers, on two cores: half of the time a test waits. tests/kit/schedule.py says which tests belong together.
WORKERS  ?= 4
# A test that hangs ends its worker after its limit, and the run with it: pytest-xdist gives a new worker no tests, and
# would wait for it for ever.
PARALLEL := --numprocesses $(WORKERS) --dist loadgroup --no-loadscope-reorder --max-worker-restart 0 --durations 20

.PHONY: setup run check audit format test test-all faults faults-secure soak coverage bench bench-kafka bench-replicated bench-limits bench-scale bench-failover bench-heartbeats bench-balance bench-groups bench-transactions bench-clients bench-cli bench-security bench-console bench-spark compose-test compose-test-secure docs lock clean

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# Three brokers and a ZooKeeper, until Ctrl-C. UP_ARGS="--brokers 1" for other options of `ottla up`.
run: setup
	$(BIN)/ottla up $(UP_ARGS)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --explicit-package-bases tests bench scripts
	$(BIN)/lint-imports

# Known vulnerabilities of the locked packages. Needs the vulnerability service of PyPI, so `make check` does without.
audit: setup
	@test -x .venv-audit/bin/pip-audit || { $(PYTHON) -m venv .venv-audit && .venv-audit/bin/pip install --quiet "pip-audit>=2.9,<3"; }
	@$(BIN)/python -m scripts.audit_dependencies .venv-audit/bin/pip-audit

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# What CI runs: units, storage, the protocol against Kafka's classes, every client, one fault of each kind.
test: setup
	@scripts/system-packages --if-possible
	$(BIN)/pytest $(PARALLEL) $(PYTEST_ARGS)

# Everything but what takes hours: also full products of clients and codecs, new seeds, more examples.
test-all: setup
	@scripts/system-packages --if-possible
	$(BIN)/pytest $(PARALLEL) -m "not long_faults and not soak" --hypothesis-profile thorough $(PYTEST_ARGS)

# All that a cluster must survive, also what takes minutes; `make test` has one of each kind. Network faults need root.
faults: setup
	$(BIN)/pytest $(PARALLEL) -m "(faults or long_faults) and not soak" $(PYTEST_ARGS)

# Those of clusters alone, with every listener on SASL_SSL, and ACLs; `make faults` has them, too.
faults-secure: setup
	$(BIN)/pytest $(PARALLEL) tests/faults -m "faults and not soak" -k SASL_SSL $(PYTEST_ARGS)

# Faults by chance, one after the other, for half an hour, or as long as SOAK_SECONDS says.
SOAK_SECONDS ?= 1800
soak: setup
	OTTLA_SOAK_SECONDS=$(SOAK_SECONDS) $(BIN)/pytest -m soak $(PYTEST_ARGS)

# Lines and branches that `make test` reaches, processes included, per room.
coverage: setup
	$(BIN)/python -m scripts.coverage_rooms $(PARALLEL) $(PYTEST_ARGS)

# What parts of the broker cost, then a whole one under load. BENCH_ARGS="--quick" to try it out, "--json FILE" to keep it.
bench: setup
	$(BIN)/python bench/codec.py
	$(BIN)/python bench/batch.py
	$(BIN)/python bench/storage.py
	$(BIN)/python bench/open_logs.py
	$(BIN)/python -m bench.broker $(BENCH_ARGS)

# The last of these beside Apache Kafka on the same machine, by turns. Needs Java 17, and Maven the first time.
bench-kafka: setup
	$(BIN)/python -m bench.kafka $(BENCH_ARGS)

# Three brokers, three replicas, acks=all: both clusters on this machine, by turns. BENCH_ARGS="--rounds 1 --seconds 3".
bench-replicated: setup
	$(BIN)/python -m bench.replicated $(BENCH_ARGS)

# What client and machine allow: the rows of bench-kafka with a broker that does next to nothing. BENCH_ARGS=--replicas.
bench-limits: setup
	$(BIN)/python -m bench.limits $(BENCH_ARGS)

# A cluster with thousands of partitions: creating them, losing the controller, and what they cost when nothing happens.
bench-scale: setup
	$(BIN)/python -m bench.scale $(BENCH_ARGS)

# Brokers killed under load: how long clients wait. BENCH_ARGS="--rounds 1 --kafka" to see Apache Kafka beside it.
bench-failover: setup
	$(BIN)/python -m bench.failover $(BENCH_ARGS)

# How long ZooKeeper hears nothing from brokers under full load. BENCH_ARGS="--session-ms 2000 --seconds 60".
bench-heartbeats: setup
	$(BIN)/python -m bench.heartbeats $(BENCH_ARGS)

# Balance: bytes copied beside the least possible. BENCH_ARGS=--cluster moves 600 partitions under load.
bench-balance: setup
	$(BIN)/python -m bench.balance $(BENCH_ARGS)

# Consumer groups: the first record of a new one, a thousand of them at once, and a million offsets on failover.
bench-groups: setup
	$(BIN)/python -m bench.groups $(BENCH_ARGS)

# Transactions, on one broker and on three, beside Apache Kafka. BENCH_ARGS="--rounds 1 --seconds 3 --brokers 1".
bench-transactions: setup
	$(BIN)/python -m bench.transactions $(BENCH_ARGS)

# Our client beside aiokafka, kafka-python and confluent-kafka, on one broker of ours, by turns.
bench-clients: setup
	$(BIN)/python -m bench.clients $(BENCH_ARGS)

# Processor time of common commands, beside kcat.
bench-cli: setup
	$(BIN)/python -m bench.cli $(BENCH_ARGS)

# TLS and logins: what they cost a broker of ours, and one of Apache Kafka beside it, by turns.
bench-security: setup
	$(BIN)/python -m bench.security $(BENCH_ARGS)

# A broker with five open pages of the console and without, by turns.
bench-console: setup
	$(BIN)/python -m bench.console $(BENCH_ARGS)

# Our Spark sources beside Spark's own connector, on one topic, by turns. BENCH_ARGS="--rows 1000000" for a short one.
bench-spark: setup
	$(BIN)/python -m bench.spark $(BENCH_ARGS)

# docker-compose.yml tried for real: a cluster in containers, used, harmed and restarted. Says what it needs.
compose-test: setup
	$(BIN)/python scripts/compose_test.py $(COMPOSE_ARGS)

# Its profile `secure`: TLS, passwords and ACLs.
compose-test-secure: setup
	$(BIN)/python -m scripts.compose_test_secure $(COMPOSE_ARGS)

# The generated pages and dashboards; a test fails when they are not current.
docs: setup
	$(BIN)/python -m ottla.broker.config > docs/CONFIG.md
	$(BIN)/python -m scripts.grafana_dashboards
	$(BIN)/python -m scripts.rooms > docs/ROOMS.md
	$(BIN)/python -m scripts.console_api > docs/CONSOLE_API.md
	$(BIN)/python -m scripts.client_options
	$(BIN)/python -m scripts.cli_page > docs/CLI.md
	$(BIN)/python -m scripts.certify_page

# Needs uv. Writes the versions and hashes that every machine installs.
lock:
	uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --all-extras --generate-hashes \
	  --no-emit-index-url --custom-compile-command "make lock" --output-file requirements.lock

clean:
	rm -rf .venv* build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
