# `make help` lists the targets. All of them work in a fresh clone: what they need they install into .venv first.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

RECIPE ?= recipes/qwen38_tep8.yaml
RUNS ?= runs
CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pdkit
TESTS ?=

# The engines are 3 GB and take minutes, so they live outside the clone and are shared by all clones with the same lock.
ENGINES_INPUTS := pdkit/laptop/engines.lock pdkit/laptop/install.sh pdkit/laptop/shim/METADATA
ENGINES = $(CACHE)/engines-$(shell cat $(ENGINES_INPUTS) 2>/dev/null | sha256sum | cut -c1-12)

# step NAME,COMMAND: show the name, run the command, show how it ended and the seconds
define step
@printf '\n== %s\n' '$(1)'; start=$$(date +%s%N); code=0; $(2) || code=$$?; \
took=$$(( ($$(date +%s%N) - start) / 100000000 )); \
printf '== %s: %s, %d.%d s\n' '$(1)' "$$([ $$code -eq 0 ] && echo ok || echo FAILED)" $$((took / 10)) $$((took % 10)); exit $$code
endef

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

.venv/complete: pyproject.toml .ci/venv
	@.ci/venv

DEMO ?= recipes/local/tiny_pd.yaml

.PHONY: demo
demo: .venv/complete engines ## plan the front-door recipe, then serve, prove, gate and sweep a tiny model on this machine
	$(call step,pdkit check $(RECIPE),.venv/bin/pdkit check $(RECIPE))
	$(call step,pdkit plan $(RECIPE),.venv/bin/pdkit plan $(RECIPE))
	$(call step,pdkit render $(RECIPE),.venv/bin/pdkit render $(RECIPE) --output $(RUNS))
	$(call step,pdkit run $(DEMO),.venv/bin/pdkit run $(DEMO) --output $(RUNS))

.PHONY: test lint format types layers pytest
test: lint format types layers pytest ## everything that must hold: ruff, mypy, import-linter, pytest

lint: .venv/complete ## ruff's rules
	$(call step,ruff check,.venv/bin/ruff check --quiet .)

format: .venv/complete ## ruff's formatting, checked only
	$(call step,ruff format,.venv/bin/ruff format --check --quiet .)

types: .venv/complete ## mypy, strict
	$(call step,mypy,.venv/bin/mypy)

layers: .venv/complete ## which module may import which
	$(call step,import-linter,.venv/bin/lint-imports)

pytest: .venv/complete ## the tests alone (TESTS="tests/plan -k blocks" for some of them)
	$(call step,pytest,.venv/bin/pytest $(TESTS))

.PHONY: docs
docs: .venv/complete ## write docs/recipe.md, docs/rules/ and the output in README.md anew
	$(call step,docs,.venv/bin/python docs/make.py)

.PHONY: bench
bench: .venv/complete ## CPU seconds of the commands, start-up of a job on the virtual rack (BENCH=--json for scripts)
	@.venv/bin/python bench/run.py $(BENCH)

.PHONY: rack-deps
rack-deps: ## Slurm's packages for the virtual rack, by apt (root)
	$(call step,rack packages,pdkit/rack/install.sh)

.PHONY: engines
engines: .venv/complete ## vLLM (CPU), Dynamo and NIXL for this machine: .venv-vllm, kept in ~/.cache/pdkit
	$(call step,engines,$(if $(call is_folder,.venv-vllm),pdkit/laptop/install.sh .venv-vllm,mkdir -p $(CACHE) && pdkit/laptop/install.sh $(ENGINES) && ln -sfn $(ENGINES) .venv-vllm))

# a real folder, put there by hand: left where it is
is_folder = $(shell [ -d $(1) ] && [ ! -L $(1) ] && echo yes)

.PHONY: clean
clean: ## remove .venv, caches and rendered runs; the engines in ~/.cache/pdkit stay
	rm -rf .venv runs .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@[ ! -L .venv-vllm ] || rm .venv-vllm
	find pdkit tests bench docs -name __pycache__ -type d -prune -exec rm -rf {} +
