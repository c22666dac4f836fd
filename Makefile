# `make` alone lists what there is. Everything sets up its own virtual environment in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TOOLS := $(VENV)/.tools
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help run test check lint types layers unit bench crash sim soak verify-law mutation mutmut docs format clean

help: ## what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Penstock needs Python 3.11 or newer; set PYTHON=") if sys.version_info < (3, 11) else None'
	@echo "setting up $(VENV) (once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q -c constraints.txt -e .
	@touch $@

$(TOOLS): $(READY) requirements-dev.txt
	@echo "setting up the tools for tests and benchmarks in $(VENV) (once; it takes minutes)"
	@$(BIN)/python -m pip install -q -c constraints.txt -r requirements-dev.txt
	@touch $@

run: $(READY) ## the product on SQLite, with a demo to look at
	@$(BIN)/penstock run examples/demo.yaml --app examples/shop.py --id demo --store sqlite:///demo.db --again

test: $(TOOLS) ## everything
	@$(BIN)/python tests/run.py

check: lint types layers unit ## format, lint, types, layers, unit tests

lint: $(TOOLS)
	@$(BIN)/ruff format --check . && $(BIN)/ruff check .

types: $(TOOLS)
	@$(BIN)/pyright --warnings

layers: $(TOOLS)
	@$(BIN)/lint-imports

unit: $(TOOLS)
	@$(BIN)/python -m pytest -q tests/unit

bench: $(TOOLS) ## speed, side by side with the raw limit and with peers
	@$(BIN)/python bench/run.py $(ARGS)

crash: $(TOOLS) ## kill -9 at every named point and at random, on both stores; power loss, a killed server
	@$(BIN)/python tests/crash/run.py $(ARGS)

soak: $(TOOLS) ## 30 minutes of mixed load with retention on: memory, files and latency stay flat
	@$(BIN)/python tests/soak/run.py $(ARGS)

sim: $(TOOLS) ## seeds of simulated crashes and faults on all cores, until stopped, or N of them; a failing one is shrunk
	@$(BIN)/python tests/simulation/run.py $(if $(N),-n $(N)) $(ARGS)

verify-law: $(TOOLS) ## thousands of definitions: what is proved holds, what is refuted reproduces
	@PENSTOCK_EXAMPLES=$(or $(N),2000) PYTHONPATH=tests $(BIN)/python -m pytest -q -s tests/laws/test_verify.py

mutation: $(TOOLS) ## 30 good definitions, each broken in 10 random ways: what is found, missed, falsely reported
	@PYTHONPATH=tests $(BIN)/python tests/verify/mutation.py $(ARGS)

mutmut: $(TOOLS) ## mutants of core/, drawn from a seed over all its files: what the quick tests kill, and what survives
	@$(BIN)/python tests/survival/run.py $(ARGS)

docs: $(TOOLS) ## what is generated: reference pages, that of the patterns, the schema, the stub of penstock.sync
	@$(BIN)/python -m penstock.sync.stub
	@$(BIN)/python -m penstock.dsl.schema > docs/definition.schema.json
	@$(BIN)/python docs/reference/generate.py
	@$(BIN)/python docs/concepts/patterns.py
	@PYTHONPATH=tests $(BIN)/python tests/engine/test_controls_table.py

format: $(TOOLS)
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

clean: ## remove what was built and the demo's database
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis demo.db*
