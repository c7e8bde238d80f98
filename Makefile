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
.PHONY: help setup setup-run demo test check lint types imports unit integration e2e fmt proto proto-check kube-assets lock docs docs-check

help: ## list the targets
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v >= (3, 11) else f"make: Python 3.11 or later is needed, {PYTHON} is %d.%d" % v)' PYTHON=$(PYTHON)
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

lint: setup
	@$(BIN)/ruff format --check --quiet . || { $(BIN)/ruff format --diff . 2>&1 | tail -40; exit 1; }
	@$(BIN)/ruff check --quiet .
types: setup
	@$(BIN)/mypy $(SOURCES)
imports: setup
	@$(BIN)/lint-imports --no-cache
unit: setup ## unit and property tests
	@$(BIN)/python -m pytest -q -m "not integration and not e2e" $(ARGS)
check: lint types imports proto-check unit ## the fast gate
fmt: setup ## format and fix what can be fixed
	@$(BIN)/ruff format --quiet . && $(BIN)/ruff check --quiet --fix .

PROTOS := $(wildcard proto/src/sawhorse_proto/*/v1/*.proto)
PROTOC = $(BIN)/python -m grpc_tools.protoc -Iproto/src --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy \
         --plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc
proto: setup ## generate the gRPC code beside the .proto files
	@$(PROTOC) --python_out=proto/src --grpc_python_out=proto/src --mypy_out=quiet:proto/src --mypy_grpc_out=quiet:proto/src $(PROTOS)
proto-check: setup
	@rm -rf .make/proto && mkdir -p .make/proto
	@$(PROTOC) --python_out=.make/proto --grpc_python_out=.make/proto --mypy_out=quiet:.make/proto --mypy_grpc_out=quiet:.make/proto $(PROTOS)
	@for f in $$(cd .make/proto && find . -name '*_pb2*'); do cmp -s ".make/proto/$$f" "proto/src/$$f" \
	  || { echo "proto/src/$$f is not what its .proto generates: run make proto" >&2; exit 1; }; done
