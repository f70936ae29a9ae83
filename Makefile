# GNU make, POSIX sh. Everything is made inside .venv; nothing needs root. `make` alone says what there is.
# PYTHON=/path/to/python3 chooses the Python that .venv is made by.

.DEFAULT_GOAL := help
.PHONY: help demo demo-servers check test test-all test-vm test-packages lint fuzz model soak order-stress bench bench-agent bench-store bench-cluster bench-grafana bench-slurm docs docs-serve pictures lock slurm-plugin wheel deb rpm release clean venv-demo venv-dev
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

PY := .venv/bin/python
CODE := logshipper ingest/logshipper_ingest observe/logshipper_observe grafana/logshipper_grafana examples benchmarks tests docs/tools
VM_PACKAGES := qemu-system-x86=qemu-system-x86_64 debootstrap e2fsprogs=mke2fs
RELEASE_PACKAGES := lintian rpmlint rpm=rpmbuild gcc make libc6-dev=/usr/include/stdio.h libslurm-dev=/usr/include/slurm/spank.h
step = @requirements/step.sh
# `make test-all`: what it gets, or is required, isn't skipped; `off` leaves it out. Root on Debian, where namespaces may be made, gets
# installed what Slurm's tests need, and Debian's Chromium; LOGSHIPPER_TEST_PACKAGES=no prevents that
ifneq ($(filter test-all,$(MAKECMDGOALS)),)
export LOGSHIPPER_TEST_SERVERS ?= fetched
ifneq ($(LOGSHIPPER_TEST_PACKAGES),no)
ifndef LOGSHIPPER_TEST_BROWSER # asked once, not for each recipe
export LOGSHIPPER_TEST_BROWSER := $(shell [ "$$(id -u)" -ne 0 ] || ! apt-cache show chromium >/dev/null 2>&1 || echo required)
endif
ifndef LOGSHIPPER_TEST_SLURM # likewise
export LOGSHIPPER_TEST_SLURM := $(shell [ "$$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null || ! unshare --mount --pid --fork true 2>/dev/null || echo required)
endif
endif
endif

help: ## says what there is
	@echo 'make TARGET [PYTHON=/path/to/python3]'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' Makefile | awk -F'|' '{ printf "%-14s %s\n", $$1, $$2 }'

demo: venv-demo ## captures a training run of some seconds and shows what becomes of it
	@$(PY) -m examples.demo

demo-servers: venv-dev ## the same in a real Loki and Prometheus, through the node agent (KEEP=1 leaves them up)
	@$(PY) -m tests.servers.build loki prometheus
	@KEEP=$(KEEP) $(PY) -m examples.demo_servers

check: lint ## style, types, the tests of the pure parts (a minute)
	@$(PY) tests/run.py check

test: lint ## style, types, all tests that need no server, no root and no package of the system (some minutes)
	@$(PY) tests/run.py core

test-all: ## `make test`; real servers and schedulers, what root must do (half an hour; root on Debian: installs packages)
	@requirements/system.sh
	@$(MAKE) venv-dev
	@$(PY) -m tests.servers.meanwhile $(MAKE) test
	@requirements/tools.sh
	@$(PY) tests/run.py all

test-vm: venv-dev ## the Slurm parts in a virtual machine with systemd and cgroup v2 (half an hour; root on Debian; RELEASE=trixie, MACHINES=2)
	@[ "$$(id -u)" -eq 0 ] || { echo 'make test-vm: debootstrap needs root' >&2; exit 2; }
	@LOGSHIPPER_TEST_PACKAGES='$(if $(filter no,$(LOGSHIPPER_TEST_PACKAGES)),no,$(VM_PACKAGES))' requirements/system.sh
	@$(PY) -m tests.vm.$(if $(filter 2,$(MACHINES)),pair_run,run) --release $(or $(RELEASE),trixie) --mirror '$(MIRROR)' $(CASES)

test-packages: venv-dev ## packages built, checked and tried in a root of each Debian and Ubuntu release (root on Debian; RELEASE=trixie)
	@[ "$$(id -u)" -eq 0 ] || { echo 'make test-packages: debootstrap needs root' >&2; exit 2; }
	@LOGSHIPPER_TEST_PACKAGES='$(if $(filter no,$(LOGSHIPPER_TEST_PACKAGES)),no,debootstrap)' requirements/system.sh
	@$(PY) -m tests.distributions.run --mirror '$(MIRROR)' $(RELEASE)

lint: venv-dev ## ruff and mypy --strict
	$(step) 'Style: ruff check' $(PY) -m ruff check .
	$(step) 'Style: ruff format' $(PY) -m ruff format --check .
	$(step) 'Types: mypy --strict' $(PY) -m tests.tools.compiling $(PY) -m mypy --strict $(CODE)

fuzz: venv-dev ## feeds the renderer a million random streams (half an hour; COUNT=N, SEED=N; failures in fuzz-failures/)
	@$(PY) -m tests.tools.stress.fuzz --count $(or $(COUNT),1000000) --seed $(or $(SEED),0)

model: venv-dev ## drives the spool, the checkpoints and the agent at random against models of them, then all property tests (two hours; COUNT=N)
	@LOGSHIPPER_MODEL_EXAMPLES=$(or $(COUNT),5000) $(PY) -m pytest -q -p no:cacheprovider --timeout=0 $$(find tests -name 'test_model_*.py')
	@LOGSHIPPER_MODEL_EXAMPLES=$(or $(COUNT),5000) $(PY) -m pytest -q -p no:cacheprovider --timeout=0 -m 'hypothesis and not all' tests

soak: venv-dev ## jobs, a real Loki and faults at random; counts every line (half an hour; MINUTES=N, SEED=N, RING=1: three Lokis)
	@$(PY) -m tests.servers.build loki
	@$(PY) -m tests.tools.stress.soak --minutes $(or $(MINUTES),30) --seed $(or $(SEED),0) $(if $(RING),--ring --jobs 3)

order-stress: venv-dev ## jobs whose streams switch modes against each other; looks for what leaks (half an hour; RUNS=N, SEED=N)
	@$(PY) -m tests.tools.stress.order_stress --runs $(or $(RUNS),3000) --seed $(or $(SEED),0)

bench: venv-dev ## measures speed and memory (a quarter of an hour; nothing else should run)
	@requirements/tool.sh wandb
	@$(PY) -m tests.servers.build loki
	@$(PY) -m benchmarks.run
	@$(PY) -m benchmarks.listing

bench-agent: venv-dev ## measures what a day's captures leave in a node agent, and how it catches up (a quarter of an hour; COUNT=N captures)
	@$(PY) -m tests.servers.build loki
	@$(PY) -m benchmarks.agent_growth --captures $(or $(COUNT),20000)

bench-store: venv-dev ## measures commands and page on a store of 100,000 jobs (some minutes, 2 GB; COUNT=N jobs)
	@$(PY) -m benchmarks.store_growth --jobs $(or $(COUNT),100000)

bench-cluster: venv-dev ## measures a day of 100 nodes and 1,000 jobs in Loki and Prometheus, and what pages read of it (a quarter of an hour)
	@$(PY) -m tests.servers.build loki prometheus
	@$(PY) -m benchmarks.cluster_day

bench-grafana: venv-dev ## measures a job page's queries in a Loki of 1,000 hosts (half an hour; nothing else should run)
	@$(PY) -m tests.servers.build loki prometheus
	@$(PY) -m benchmarks.grafana_scale

bench-slurm: venv-dev ## measures what capture costs a Slurm job (as root, with Slurm installed; nothing else should run)
	@$(PY) -m benchmarks.slurm

docs: venv-dev ## builds the documentation site in build/docs/site, and checks its links
	@requirements/tool.sh docs
	@$(PY) -m docs.tools.site

docs-serve: venv-dev ## the same, then shows it on http://127.0.0.1:8000 until Ctrl-C (PORT=N)
	@requirements/tool.sh docs
	@$(PY) -m docs.tools.site --serve --port $(or $(PORT),8000)

pictures: venv-dev ## records README's animation, docs/images/terminal.svg
	@$(PY) -m docs.tools.animation

lock: ## writes requirements/*.lock (UPGRADE=1: the newest of everything)
	@requirements/lock.sh

slurm-plugin: ## builds the Slurm plugin and its keeper, in deploy/slurm/spank/build
	@$(MAKE) -C deploy/slurm/spank

wheel: venv-dev ## builds dist/logshipper-*.whl
	@rm -rf build dist/*.whl
	$(step) 'Building the wheel' $(PY) -m pip wheel --no-index --no-deps --no-build-isolation --wheel-dir dist .
	@rm -rf build
	@ls dist/*.whl

deb: venv-demo ## builds Debian packages of logshipper and its Slurm plugin for this Debian or Ubuntu, in dist/
	@deploy/packages/build.sh deb

rpm: venv-demo ## builds an RPM of logshipper and a source RPM of the plugin, in dist/ (TARGET=el8, el9, el10 or all)
	@deploy/packages/build.sh rpm

release: venv-dev ## builds, checks and tags a release in dist/VERSION (TAG=no: a rehearsal; PARTS=python,deb,rpm; root on Debian: installs the checkers)
	@LOGSHIPPER_TEST_PACKAGES='$(if $(filter no,$(LOGSHIPPER_TEST_PACKAGES)),no,$(RELEASE_PACKAGES))' requirements/system.sh
	@requirements/tool.sh release
	@requirements/tool.sh runtime
	@$(PY) deploy/packages/release.py $(if $(PARTS),--parts '$(PARTS)') $(if $(filter no,$(TAG)),--no-tag)

clean: ## removes all that was made here: .venv, caches, dist, the demo's output
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist demo-out fuzz-failures *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

venv-demo:
	@requirements/venv.sh demo

venv-dev:
	@requirements/venv.sh dev
