# `make` alone lists what there is. Everything sets up its own virtual environment in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help run test check lint types layers unit bench crash soak docs format clean

help: ## what there is
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

$(STAMP): pyproject.toml constraints.txt requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit("Penstock needs Python 3.11 or newer; set PYTHON=") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e . -r requirements-dev.txt
	@touch $@

run: $(STAMP) ## the product on SQLite, with a demo to look at
	@$(BIN)/penstock run examples/demo.yaml --app examples/shop.py --id demo --store sqlite:///demo.db --again

test: $(STAMP) ## everything
	@$(BIN)/python -m pytest -q

check: lint types layers unit ## format, lint, types, layers, unit tests

lint: $(STAMP)
	@$(BIN)/ruff format --check . && $(BIN)/ruff check .

types: $(STAMP)
	@$(BIN)/pyright --warnings

layers: $(STAMP)
	@$(BIN)/lint-imports

unit: $(STAMP)
	@$(BIN)/python -m pytest -q tests/unit

bench: $(STAMP) ## speed, side by side with the raw limit and with peers
	@$(BIN)/python bench/run.py $(ARGS)

crash: $(STAMP) ## kill -9 at every named point and at random; power loss
	@$(BIN)/python tests/crash/run.py $(ARGS)
	@$(BIN)/python tests/crash/run.py --store postgres $(ARGS)

soak: $(STAMP) ## 30 minutes of mixed load with retention on: memory, files and latency stay flat
	@$(BIN)/python tests/soak/run.py $(ARGS)

docs: $(STAMP) ## what is generated: the schema's page, the stub of penstock.sync
	@$(BIN)/python -m penstock.sync.stub
	@$(BIN)/python -m penstock.dsl.schema > docs/definition.schema.json

format: $(STAMP)
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

clean: ## remove what was built and the demo's database
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis demo.db*
