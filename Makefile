# dcblab: two commands do everything on a fresh Debian 12 machine, as root or with sudo:
#   make lab     sets up, then runs the main job (storage and business traffic on a lossless leaf-spine)
#   make test    sets up, then passes the tests
# make lab TARGET=bmv2 runs it on BMv2, where simple_switch_grpc is on the PATH.
# Others: make setup | up | bench | fuzz | p4 | lint | clean

SHELL    := /bin/bash
PYTHON   ?= /usr/bin/python3
VENV     := .venv
BIN      := $(VENV)/bin
SUDO     := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
# Network namespaces need root. Under sudo these variables, where set, go along; a user's PATH has no sbin.
KEEP     := DCBLAB_CACHE DCBLAB_RUN DCBLAB_RESULTS DCBLAB_FULL CI
AS_ROOT  := $(if $(SUDO),sudo env PATH="/usr/local/sbin:/usr/sbin:/sbin:$$PATH" $(foreach v,$(KEEP),$(if $($v),$v="$($v)")),)

# What each Debian package is for is in docs/dependencies.md.
APT      := python3 python3-venv python3-dev gcc libc6-dev make iproute2 ethtool iputils-ping mininet iperf3 procps tshark git lldpad lldpd

.PHONY: setup lab up test bench fuzz p4 lint clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml Makefile
	@missing=""; for p in $(APT); do dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then echo "== apt-get install$$missing"; \
	  $(SUDO) .ci/apt-install $$missing; fi
	@echo "== Python environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[test]'
	@# Mininet's Python half is Debian's; only that package is let into the environment.
	@ln -sfn "$$(/usr/bin/python3 -c 'import mininet, os; print(os.path.dirname(mininet.__file__))')" \
	  "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/mininet"
	@touch $@

lab: setup
	$(AS_ROOT) $(BIN)/dcblab run storage-and-business $(if $(TARGET),--target $(TARGET))

up: setup
	$(AS_ROOT) $(BIN)/dcblab up $(if $(TARGET),--target $(TARGET))

# First what shares nothing, on all processors; then labs and links, one after the other: they are about time and names.
# Both run whatever the other says, and one that fails fails it all. With PYTEST_ARGS it is one run of what they choose.
PYTEST   := $(BIN)/python -m pytest
test: setup lint
ifdef PYTEST_ARGS
	$(AS_ROOT) $(PYTEST) $(PYTEST_ARGS)
else
	@status=0; set -x; \
	$(AS_ROOT) $(PYTEST) -rs -m "not mininet" -n logical --dist worksteal || status=1; \
	$(AS_ROOT) $(PYTEST) -rs -m mininet || status=1; \
	exit $$status
endif

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(AS_ROOT) $(BIN)/python -m tests.bench

# Random tables and packets through interpreter and generated C; make fuzz FUZZ="--seconds 3600 --seed 7"
fuzz: setup
	$(BIN)/python -m tests.fuzz $(FUZZ)

p4: setup
	$(BIN)/python p4src/build.py

clean: setup
	$(AS_ROOT) $(BIN)/dcblab clean
