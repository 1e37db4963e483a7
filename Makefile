# Each recipe is one bash script, so that it can hold on to what it starts and end it when it leaves.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
.PHONY: help demo test lint mutants bench soak kinds manifests

# Always the whole workspace: a single package would be built with other features, and so once more.
TARGET := $(or $(CARGO_TARGET_DIR),target)
# For recipes of several commands: name each before it runs.
RUN := run() { echo "== $$*"; "$$@"; }

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Watch nodes break and be repaired, in half a minute
	@tests/setup rust cc
	# Built first and aloud, since the demo itself should have the screen to itself.
	cargo build --locked --workspace --bins
	"$(TARGET)/debug/resus" demo

test: ## Run every test, most of them against real Kubernetes parts
	@tests/setup rust cc
	work=$$(mktemp -d)
	export RESUS_SKIPPED_FILE=$$work/skipped
	: >"$$RESUS_SKIPPED_FILE"
	# What the stories asked for, for the test that compares it with the rights that we ship.
	export RESUS_RIGHTS_FILE=$$work/rights
	kube= previous=
	trap 'for build in $$kube $$previous; do kill -- "-$$build" 2>/dev/null || true; done; rm -rf "$$work"' EXIT
	trap 'exit 130' INT TERM
	# Building Kubernetes takes as long as compiling us, so both start now. Job control gives the build a process
	# group of its own: leaving early ends all of it, the Go compilers included.
	set -m; tests/kube/build </dev/null >/dev/null & kube=$$!; set +m
	cargo test --locked --workspace --no-run
	# The version before this one has the same third-party crates. It is built while Kubernetes is, or while tests wait;
	# the story that needs it waits for it, and says what is wrong if it cannot be had.
	set -m; tests/previous "$(TARGET)" </dev/null >/dev/null & previous=$$!; set +m
	if kill -0 "$$kube" 2>/dev/null; then echo "make test: waiting for the Kubernetes parts"; fi
	kube_built=yes
	wait "$$kube" || kube_built=no
	kube=
	if [ $$kube_built = no ]; then
	  echo "make test: the Kubernetes parts could not be built; lines that begin with tests/kube above say why" >&2
	  if [ "$${RESUS_REQUIRE_REAL:-}" = 1 ]; then exit 1; fi
	  echo "make test: going on, tests that need them are skipped (RESUS_REQUIRE_REAL=1 makes this a failure)" >&2
	fi
	result=0
	tests/all || result=$$?
	skipped=$$(wc -l <"$$RESUS_SKIPPED_FILE")
	if [ "$$skipped" -gt 0 ]; then
	  echo "make test: $$skipped skipped:"
	  sort "$$RESUS_SKIPPED_FILE" | uniq -c
	fi
	exit $$result

lint: ## Check format, lints, generated files, documentation, dependencies and scripts
	@tests/setup rust cc deny shellcheck
	$(RUN)
	run cargo fmt --all --check
	run cargo clippy --locked --workspace --all-targets -- -D warnings
	run cargo build --locked --workspace --bins
	run "$(TARGET)/debug/resus" manifests --check
	run env RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps
	# Without the tree of each duplicate; cargo tree -d has it.
	run "$$(tests/setup --where deny)" --locked check --hide-inclusion-graph bans licenses sources
	run shellcheck tests/kubectl/prelude $$(git grep --untracked -l '^#!/usr/bin/env bash$$')

mutants: ## Break one rule at a time and see the tests notice
	@tests/setup rust cc
	# The crates of others are built here, and taken over from here.
	cargo test --locked --workspace --no-run
	tests/mutants/run

bench: ## Measure, in a release build
	@tests/setup rust cc kube
	cargo bench --locked --workspace --bench handle
	cargo build --locked --release --workspace --bins
	"$(TARGET)/release/bench"

soak: ## Run properties, simulated seeds and searches for long, in a release build
	@tests/setup rust cc
	PROPTEST_CASES=$${PROPTEST_CASES:-200000} RESUS_SEEDS=$${RESUS_SEEDS:-5000} \
	  RESUS_FENCING_SEEDS=$${RESUS_FENCING_SEEDS:-20000} RESUS_FUZZ=$${RESUS_FUZZ:-1000000} \
	  cargo test --locked --release -p resus-core -p resus-k8s -p resus-sim -- --include-ignored

kinds: ## Ask a real API server again what its kinds look like, for the embedded one
	@tests/setup rust cc kube
	cargo build --locked --workspace --bins
	"$(TARGET)/debug/kinds"
	cd tests/kube/kubernetes && go run ./wire ../../../apiserver/src/kinds.json >../../../apiserver/src/wire/messages.json

manifests: ## Generate the files in deploy/ anew
	@tests/setup rust cc
	cargo build --locked --workspace --bins
	"$(TARGET)/debug/resus" manifests
