# Every target does its own set-up: `make demo` or `make test` on a fresh clone needs Python 3.11 or newer and nothing else.

VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
LOWEST := .venv-lowest
# Where test-pythons looks, by name on the PATH.
PYTHONS ?= 3.11 3.12 3.13 3.14
# What an environment is made with: the first of these that is there.
CANDIDATES := python3.14 python3.13 python3.12 python3.11 python3
INPUTS := pyproject.toml constraints.txt
# Most tests wait for servers and processes: three at a time keep two cores busy. Files go in order, the small ones last.
SIDE_BY_SIDE := -n 3 --dist loadfile --no-loadscope-reorder

# What a newcomer's machine can run: Valkey and SQLite come with Python packages.
NEWCOMER := tests/unit tests/packaging/test_shape.py tests/packaging/test_layers.py tests/scripts \
	tests/conformance/test_memory.py tests/conformance/test_valkey_sqlite.py tests/client/test_sessions.py \
	tests/client/test_concurrency.py tests/client/test_leases.py tests/client/test_namespaces.py tests/races/test_flush.py

# What test-full measures the coverage of. A traced test takes twice the CPU time, so these are the ones that reach most of the code.
MEASURED := tests/unit tests/conformance/test_memory.py tests/conformance/test_valkey_sqlite.py

.PHONY: demo quick test test-full test-lowest test-pythons lint bench bench-others bench-full bench-peers chaos mutants docs
.DELETE_ON_ERROR:

demo: $(VENV)/demo.stamp
	$(BIN)/sessioncache demo

# While editing: under a minute.
quick: $(VENV)/dev.stamp
	$(BIN)/ruff check
	$(BIN)/pytest -q -n 2 tests/unit tests/scripts/test_writing.py tests/conformance/test_memory.py

# A newcomer's tests: within five minutes, with nothing but Python.
test: $(VENV)/dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pytest $(SIDE_BY_SIDE) --from-packages -m "not slow and not alone" $(NEWCOMER)

# Everything, with every server: types, races, faults, documents, packages; then what must have the machine for itself.
test-full: lint
	$(BIN)/pytest $(SIDE_BY_SIDE) -m "not slow and not alone" --cov --cov-report= --cov-fail-under=0 $(MEASURED)
	$(BIN)/pytest $(SIDE_BY_SIDE) -m "not slow and not alone" $(addprefix --ignore=,$(MEASURED))
	$(BIN)/pytest -m "alone or slow"
	$(BIN)/python -m tests.covered

# With the lowest versions of dependencies that pyproject.toml declares; these may warn of what newer ones have mended.
test-lowest: $(LOWEST)/lowest.stamp
	$(LOWEST)/bin/python -m pytest -W default -n 2 --from-packages -m "not slow and not alone" --ignore tests/unit/test_benchmark_upserts.py \
		tests/unit tests/conformance/test_valkey_sqlite.py tests/tool/test_mcp.py tests/client/test_sessions.py

# A newcomer's tests on each Python that is found, in an environment of its own; the last line says which were not found.
test-pythons:
	@missing=; failed=; \
	for version in $(PYTHONS); do \
		if python$$version -c 'import ensurepip, venv' >/dev/null 2>&1; then \
			$(MAKE) VENV=.venv-$$version CANDIDATES=python$$version test || failed="$$failed $$version"; \
		else \
			missing="$$missing $$version"; \
		fi; \
	done; \
	echo "Python not found:$${missing:- none}; failed:$${failed:- none}"; \
	[ -z "$$failed" ] && [ "$$(echo $$missing)" != "$(strip $(PYTHONS))" ]

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# The suite: some six minutes. It ends with the name of the file that its figures are in.
bench: $(VENV)/dev.stamp
	$(BIN)/python -m benchmarks --plots

# What the suite leaves out: each of these asks one more question, and prints a table of its own.
bench-others: $(VENV)/dev.stamp
	$(BIN)/python benchmarks/batch.py
	$(BIN)/python benchmarks/flush.py
	$(BIN)/python benchmarks/sync_portal.py
	$(BIN)/python benchmarks/listing.py
	$(BIN)/python benchmarks/incarnation_check.py
	$(BIN)/python benchmarks/watch_price.py
	$(BIN)/python benchmarks/clear.py
	$(BIN)/python benchmarks/idle.py

# Takes about half an hour; meant for the background.
bench-full: bench bench-peers
	$(BIN)/python benchmarks/growth.py

# What others have built lives in an environment of its own, with this checkout beside it.
bench-peers: $(PEERS)/peers.stamp
	$(PEERS)/bin/python -m benchmarks.peers

# Configured by CHAOS_SECONDS, CHAOS_SEED, CHAOS_REDIS and CHAOS_DATABASE (docs/chaos.md).
chaos: $(VENV)/dev.stamp
	MODEL_SECONDS=$${CHAOS_SECONDS:-120} $(BIN)/pytest -q tests/model
	$(BIN)/python -m tests.chaos

mutants: $(VENV)/dev.stamp
	$(BIN)/python -m tests.mutants

# The reference from the docstrings, the pictures of the console, and the site (site/index.html).
docs: $(VENV)/dev.stamp
	$(BIN)/python docs/reference.py
	$(BIN)/python docs/pictures.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

$(VENV)/demo.stamp: $(INPUTS) $(BIN)/python
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[embedded,sqlite,postgres]"
	@touch $@

# What the demo needs is a part of this, hence both stamps.
$(VENV)/dev.stamp: $(INPUTS) $(BIN)/python
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	@touch $@ $(VENV)/demo.stamp

$(LOWEST)/lowest.stamp: pyproject.toml tests/floors.py $(BIN)/python
	$(BIN)/python -m venv --clear $(LOWEST)
	$(BIN)/python -m tests.floors > $(LOWEST)/floors.txt
	$(LOWEST)/bin/python -m pip install --quiet -c $(LOWEST)/floors.txt -e ".[embedded,sqlite,postgres,mcp,testing]" \
		"fakeredis[lua]" hypothesis pytest-timeout pytest-xdist
	@touch $@

$(PEERS)/peers.stamp: benchmarks/peers/requirements.txt pyproject.toml $(BIN)/python
	$(BIN)/python -m venv --clear $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet -r benchmarks/peers/requirements.txt -e ".[embedded,sqlite,postgres]"
	@touch $@

# The newest Python that is new enough and can make environments; a shim that stands for no installed version is passed over.
$(BIN)/python:
	@for python in $(CANDIDATES); do \
		if $$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
			echo "$$python -m venv --clear $(VENV)"; \
			exec $$python -m venv --clear $(VENV); \
		fi; \
	done; \
	echo "No Python 3.11 or newer with venv was found (on Debian and Ubuntu: apt-get install python3 python3-venv)." >&2; \
	exit 1
