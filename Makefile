# What a checkout can do. Each target makes its own environment first, quietly, and runs in the foreground.
#
#   PYTHON=python3.13   the interpreter to make the environment with (otherwise the first that is 3.11 or newer)
#   VENV=.venv          where the environment is
#   ARGS="..."          more arguments for the command behind the target
#   JOBS=auto           processes of the tests; 0: none beside pytest's own
#   DEMO_AUTH=oauth     `make demo` protects its endpoint with an authorization server of its own
#   STDIO=1             `make serve-fixtures` serves the client at its standard input and output; everything that is no
#                       message goes to standard error. With -C, make itself says where it goes: use `make -s -C`.

VENV ?= .venv
PYTHON ?=
ARGS ?=
STDIO ?=
DEMO_AUTH ?=
JOBS ?= auto
python = $(VENV)/bin/python
pytest = $(python) -m pytest -q -n $(JOBS) --dist loadfile --no-loadscope-reorder
CORE = tests/protocol tests/schema tests/server tests/repository/test_architecture.py tests/repository/test_public_api.py

# Without bytecode each process would compile the package again, and pytest rewrite all tests.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help environment demo quick test test-all test-versions collect packages real-projects lint types format messages random-tasks docs docs-build serve-fixtures serve-bench bench conformance clients dist pictures clean reference

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-22s %s\n", $$1, $$2 }'

environment: ## make or refresh the virtual environment, and nothing else
	@PYTHON="$(PYTHON)" scripts/environment "$(VENV)" </dev/null

demo: PORT ?= 8000
demo: environment ## serve the demo project on http://127.0.0.1:$PORT (8000); with DEMO_AUTH=oauth clients log in
	@exec env DEMO_AUTH="$(DEMO_AUTH)" DEMO_ORIGIN="http://127.0.0.1:$(PORT)" $(python) manage.py demo --port $(PORT) $(ARGS)

quick: environment ## check style and types, and run the core tests, within a minute
	@exec $(MAKE) --no-print-directory -j2 lint types core

core: environment
	@exec $(python) -m pytest -q $(CORE) $(ARGS)

test: environment ## run the tests that need no service, on all cores
	@$(pytest) $(ARGS)
	@$(if $(ARGS),:,exec $(MAKE) --no-print-directory packages)

test-all: environment ## run all tests, on PostgreSQL, with Redis, real servers, browsers, several workers and load
	@$(pytest) --ds tests.settings_postgres -m "" --durations=10 $(ARGS)
	@$(if $(ARGS),:,exec $(MAKE) --no-print-directory packages ARGS="--ds tests.packages.settings_postgres -m ''")

test-versions: environment ## run the tests that depend on the version of Python or Django, on SQLite
	@$(pytest) -m versions $(ARGS)
	@$(if $(ARGS),:,exec $(MAKE) --no-print-directory packages)

collect: environment ## collect all tests, which keeps their bytecode for the processes of a run
	@exec $(python) -m pytest -p no:terminal --collect-only -m "" --ds tests.settings_postgres $(ARGS)

packages: environment ## try this package beside those that projects use with it: guardian, money, Wagtail and others
	@exec $(pytest) --ds tests.packages.settings tests/packages $(ARGS)

lint: environment ## check style and formatting
	@$(python) -m ruff check .
	@$(python) -m ruff format --check --quiet .

types: environment ## check types
	@exec $(python) -m mypy $(ARGS)

format: environment ## format the code and mend what can be mended
	@$(python) -m ruff check --fix-only --quiet .
	@$(python) -m ruff format .

messages: environment ## extract the texts to translate, and update and compile the catalogues; ARGS="--add it" starts one
	@$(python) scripts/messages.py $(ARGS)

reference: environment ## write the generated pages of docs/reference, and the picture of the layers
	@$(python) -m scripts.reference $(ARGS)
	@$(python) -m tests.repository.layer_picture

docs: PORT ?= 8001
docs: environment ## build the documentation and serve it on http://127.0.0.1:$PORT (8001)
	@NO_MKDOCS_2_WARNING=1 exec $(python) -m mkdocs serve --strict --dev-addr 127.0.0.1:$(PORT) $(ARGS)

docs-build: environment ## build the documentation in build/site; a lost link fails
	@NO_MKDOCS_2_WARNING=1 exec $(python) -m mkdocs build --strict $(ARGS)

serve-fixtures: PORT ?= 8765
serve-fixtures: environment ## serve the conformance suite's fixtures on http://127.0.0.1:$PORT/mcp (8765), or with STDIO=1 over stdio
	@exec $(python) -m tests.conformance.server $(if $(filter-out 0,$(STDIO)),--stdio,--port $(PORT)) $(ARGS)

serve-bench: PORT ?= 8766
serve-bench: environment ## serve the benchmark's tools on http://127.0.0.1:$PORT/mcp (8766)
	@exec $(python) -m benchmarks.serve --port $(PORT) $(ARGS)

bench: environment ## measure this server and its peers side by side
	@exec $(python) -m benchmarks $(ARGS)

random-tasks: environment ## run tasks at random while workers are killed, paused and cut off; ARGS="--seed 7 --tasks 500 --seconds 300"
	@exec $(python) -m tests.load.random_tasks $(ARGS)

conformance: environment ## run the official conformance suite (fetches it, and Node 22 if needed, from npm)
	@exec $(python) -m tests.conformance $(ARGS)

clients: environment ## try real clients (Python's and TypeScript's, of both majors, the Inspector) on the fixtures and the demo, or ARGS=URL, and our own on servers of others
	@exec $(python) -m tests.clients $(ARGS)

pictures: environment ## take the pictures of the documentation from the demo; needs Chromium
	@exec $(python) scripts/pictures.py $(ARGS)

real-projects: environment ## add the package to django-oscar, Wagtail, pretix and NetBox, and compare; ARGS="--netbox FOLDER"
	@exec $(python) -m tests.real_projects $(ARGS)

dist: environment ## build and check the wheel and the source distribution; digests, bill of materials and licences in build/release
	@exec $(python) scripts/distributions.py $(ARGS)

clean: ## remove environments and caches
	rm -rf .venv* .cache .mypy_cache .pytest_cache .ruff_cache build dist
