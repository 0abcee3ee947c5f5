# Starloom's recipes. `make demo` and `make test` need Python 3.11 or newer and nothing else of ours.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: help demo test check format bench properties fuzz chaos model-eval examples lock clean
help:
	@echo 'make demo        run the main job: two devices, one sentence, a spreadsheet, an archive and a summary'
	@echo 'make test        set up what the tests need and pass them (this is what CI runs)'
	@echo 'make check       formatting, lint, types and the import contract'
	@echo 'make bench       the benchmarks, beside their peers'
	@echo 'make properties  the property tests, long'
	@echo 'make fuzz        mutated frames into the protocol cores, for ten minutes (SECONDS=600)'
	@echo 'make chaos       the crash tests, long'
	@echo 'make model-eval  score the embedded planner with its real weights'

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo 'Starloom needs Python 3.11 or newer on the PATH; none was found.' >&2; exit 2; }
	@echo 'Making a virtual environment in $(VENV) …'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	@echo 'Installing Starloom (the first time takes about a minute) …'
	@$(PIP) install -e '.[office]'
	@$(PIP) install -e '.[local-model]' || echo 'The embedded model has no build for this machine; the demo runs from its recipe.'
	@touch $@

$(VENV)/.test: pyproject.toml requirements.lock tests/node/package.json | $(VENV)/bin/python
	@echo 'Installing Starloom and its test tools …'
	@$(PIP) install -e '.[office,dev]' -c requirements.lock
	@if command -v npm >/dev/null; then mkdir -p $(VENV)/node && cp tests/node/package.json $(VENV)/node/ \
		&& npm install --silent --no-fund --no-audit --prefix $(VENV)/node >/dev/null \
		|| echo 'npm could not install it: the test with a third-party MCP server over Node.js will be skipped.'; \
	else echo 'npm was not found: the test with a third-party MCP server over Node.js will be skipped.'; fi
	@touch $@

demo: $(VENV)/.demo
	@$(BIN)/starloom demo $(DEMO)

test: $(VENV)/.test check
	@$(BIN)/python -m pytest

check: $(VENV)/.test
	@$(BIN)/ruff format --check --quiet . || { echo 'Run `make format`.'; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

format: $(VENV)/.test
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(VENV)/.test
	@for b in orchestrator journal aip llm; do echo "== $$b"; $(BIN)/python benchmarks/$$b.py || exit 1; done

properties: $(VENV)/.test
	@STARLOOM_PROPERTIES=long $(BIN)/python -m pytest -m properties -s

fuzz: $(VENV)/.test
	@$(BIN)/python -m tests.aip.fuzz $(or $(SECONDS),600)

chaos: $(VENV)/.test
	@STARLOOM_CHAOS=long $(BIN)/python -m pytest -m chaos -s

model-eval: $(VENV)/.demo $(VENV)/.test
	@$(PIP) install -e '.[local-model]'
	@$(BIN)/python benchmarks/planner.py

examples: $(VENV)/.test
	@$(BIN)/python examples/invoices/generate.py

lock: $(VENV)/.test
	@$(PIP) install uv
	@$(BIN)/uv pip compile --quiet --universal --no-emit-index-url --no-emit-find-links --no-header --no-annotate \
		--extra dev --extra office --extra local-model pyproject.toml --output-file requirements.lock

clean:
	rm -rf $(VENV) demo-workspace build dist
