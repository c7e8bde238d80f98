# `make help` lists the targets. Each sets up what it needs and may be repeated.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check
MEMBERS := proto $(addprefix libs/,model catalog scheduling state cloud cloud-aws kube runtime sandbox testing) \
           $(addprefix services/,watcher pricing provisioner interruption console)
SOURCES := $(addsuffix /src,$(MEMBERS))
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: fuzz help setup setup-run demo test check lint types imports unit integration e2e bench fmt proto proto-check kube-assets helm images \
        compose-check lock docs docs-check

help: ## list the targets
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "make: $(PYTHON) is older than Python 3.11; give another one: make PYTHON=python3.11 ..." >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run: requirements/run.txt $(addsuffix /pyproject.toml,$(MEMBERS)) | $(BIN)/python
	@echo "setting up $(VENV) (once)" >&2
	@$(PIP) install --quiet --require-hashes -r requirements/run.txt
	@$(PIP) install --quiet --no-deps --no-build-isolation $(addprefix -e ,$(MEMBERS))
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.run
	@$(PIP) install --quiet --require-hashes -r requirements/dev.txt
	@touch $@

setup-run: $(VENV)/.run ## the virtual environment that runs the services and the demo
setup: $(VENV)/.dev ## the same with what tests and checks need

demo: setup-run ## the whole system in the embedded world (ARGS=--json, --keep, --kube assets)
	@$(BIN)/sawhorse demo $(ARGS)

lint: setup ## format and style
	@$(BIN)/ruff format --check --quiet . || { $(BIN)/ruff format --diff . 2>&1 | tail -40; exit 1; }
	@$(BIN)/ruff check --quiet .
types: setup ## mypy --strict over the sources
	@$(BIN)/mypy $(SOURCES)
imports: setup ## the import contracts
	@$(BIN)/lint-imports --no-cache
unit: setup ## unit and property tests
	@$(BIN)/python -m pytest -q -n 2 -m "not integration and not e2e" $(ARGS)

# The real column runs where the control plane's binaries are. REQUIRE_REAL=1 (CI) makes their absence a failure.
WITH_REAL = $(BIN)/python -c 'import os, sys; from sawhorse_sandbox.controlplane import find_assets; \
  sys.exit(find_assets(os.environ.get("KUBEBUILDER_ASSETS"), cache=os.environ.get("SAWHORSE_CACHE")) is None)'
NO_REAL = echo "the real control plane did not run: its binaries are absent (make kube-assets builds them)"
NONE_ASKED_FOR = [ "$$?" = 5 -a -n "$(ARGS)" ]
define pytest_on
	@if $(WITH_REAL); then echo "$(1): with the real control plane"; \
	   $(BIN)/python -m pytest -q $(4) --timeout=$(2) -m "$(3)" $(ARGS) || $(NONE_ASKED_FOR); \
	 elif [ "$$REQUIRE_REAL" = 1 ]; then $(NO_REAL) >&2; exit 1; \
	 else $(BIN)/python -m pytest -q $(4) --timeout=$(2) -m "$(3) and not real" $(ARGS) && $(NO_REAL) || $(NONE_ASKED_FOR); fi
endef
TWO = -n 2 --dist loadfile
integration: setup ## tests against Redis, moto and API servers
	$(call pytest_on,integration,120,integration,$(TWO))
e2e: setup ## the demo's story as processes, on both columns
	$(call pytest_on,e2e alone,300,e2e and alone,)
	$(call pytest_on,e2e,300,e2e and not alone,$(TWO))
bench: setup ## one JSON line per planning workload (ARGS=<word> picks rows; see docs/benchmarks.md)
	@$(BIN)/python tests/bench/run.py $(ARGS)
fuzz: setup ## random clusters through the planner and its checker (ARGS=<how many>, 1000)
	@SAWHORSE_FUZZ=$(or $(ARGS),1000) $(BIN)/python -m pytest -q libs/scheduling/tests/test_scheduling_properties.py -k checker
kube-assets: ## build the real control plane's binaries, and helm, into a cache outside the clone (needs Go)
	@tests/kube/build.sh
	@tests/kube/helm/build.sh >/dev/null
helm: ## build helm alone into that cache; tests of the chart use it
	@tests/kube/helm/build.sh
images: ## build the container images (BASE=, ENGINE=, TAG=, PREFIX=, WHEELHOUSE=1; ARGS=names)
	@BASE="$(BASE)" ENGINE="$(ENGINE)" TAG="$(TAG)" PREFIX="$(PREFIX)" WHEELHOUSE="$(WHEELHOUSE)" deploy/images/build.sh $(ARGS)
compose-check: setup ## check docker-compose.yml, the Dockerfiles and the images' locks
	@$(BIN)/python -m pytest -q tests/integration/test_compose_files.py tests/integration/test_compose_images.py
	@deploy/images/compose-check.sh
test: check integration e2e ## everything; what CI runs
lock: setup ## make the locks anew from requirements/*.in (needs uv)
	@$(BIN)/python -B deploy/images/closure.py write
	@cd requirements && for use in run dev build watcher pricing provisioner interruption console sandbox; do uv pip compile --quiet --python-version 3.11 --generate-hashes --no-emit-index-url $$use.in -o $$use.txt; done
docs: setup ## write docs/configuration.md from the settings
	@$(BIN)/python tests/render_configuration.py
docs-check: setup
	@$(BIN)/python tests/render_configuration.py --check
check: lint types imports proto-check docs-check unit ## the fast gate
fmt: setup ## format and fix what can be fixed
	@$(BIN)/ruff format --quiet . && $(BIN)/ruff check --quiet --fix .

PROTOS := $(wildcard proto/src/sawhorse_proto/*/v1/*.proto)
PROTOC = $(BIN)/python -m grpc_tools.protoc -Iproto/src --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy \
         --plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc
proto: setup ## generate the gRPC code beside the .proto files
	@$(PROTOC) --python_out=proto/src --grpc_python_out=proto/src --mypy_out=quiet:proto/src --mypy_grpc_out=quiet:proto/src $(PROTOS)
proto-check: setup ## generated code is what the .proto files generate
	@rm -rf .make/proto && mkdir -p .make/proto
	@$(PROTOC) --python_out=.make/proto --grpc_python_out=.make/proto --mypy_out=quiet:.make/proto --mypy_grpc_out=quiet:.make/proto $(PROTOS)
	@for f in $$(cd .make/proto && find . -name '*_pb2*'); do cmp -s ".make/proto/$$f" "proto/src/$$f" \
	  || { echo "proto/src/$$f is not what its .proto generates: run make proto" >&2; exit 1; }; done
