# The two commands of the README are `make demo` and `make test`. Everything installs into .venv, nothing outside this folder.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# Bytecode is kept, also where the environment forbids it: tests start hundreds of processes, each of which would compile all modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install install-console demo demo-console docs test test-thorough test-long test-kubernetes test-postgresql test-postgresql-long test-console test-floors mutants check check-modules supply-chain image release format clean

install: $(VENV)/.installed

demo: $(VENV)/.installed
	$(BIN)/python -m hack.demo

demo-console: $(VENV)/.installed
	$(BIN)/python -m hack.demo.console

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 3 --dist worksteal

test-thorough: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 3 --dist worksteal -m "thorough and not long"

test-long: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2 -m "(long or thorough or hypothesis) and not kubernetes and not postgresql" --all-worlds

# Gets etcd, a kube-apiserver and kubectl first, into the user's cache: docs/kubernetes-development.md.
test-kubernetes: $(VENV)/.installed-dev
	$(BIN)/python -m hack.kubernetes --with kubectl
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "kubernetes and not long" tests/kubernetes

# Starts a PostgreSQL of its own, from what the system has installed: docs/store.md.
test-postgresql: $(VENV)/.installed-dev
	$(BIN)/python -m hack.postgresql $(BIN)/python -m pytest -n 2 --dist worksteal -m "postgresql and not long" tests/e2e tests/failover tests/contracts tests/reconciler/store tests/reconciler/api/test_decided_together.py

test-postgresql-long: $(VENV)/.installed-dev
	$(BIN)/python -m hack.postgresql $(BIN)/python -m pytest -n 2 --dist worksteal -m "postgresql and long" tests/e2e tests/failover

# In a real browser, Debian's Chromium: docs/console.md. What it saw lies in build/console.
test-console: install-console
	$(BIN)/python -m pytest -n 1 -m console tests/console

# What that needs beside the rest: a driver of browsers, and a judge of what everybody can use.
install-console: $(VENV)/.installed-console

# With the oldest versions of everything that pyproject.toml allows: whether its floors are true.
test-floors:
	$(PYTHON) -m venv .venv-floors
	.venv-floors/bin/python -m pip install --quiet --disable-pip-version-check uv
	.venv-floors/bin/uv pip install --quiet --python .venv-floors/bin/python --resolution lowest-direct -e ".[all]" --group dev
	.venv-floors/bin/python -m pytest -n 3

# Which bugs that are seeded on purpose the tests of CI catch: half an hour or more, so CI does not run it.
mutants: $(VENV)/.installed-dev
	$(BIN)/python -m hack.kubernetes --with kubectl
	$(BIN)/python -m hack.mutants

# The pages of docs/ as a site, in build/site: begin with index.html.
docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/quorate validate .
	@if command -v npm >/dev/null && $(MAKE) --no-print-directory hack/modules/node_modules; then $(MAKE) --no-print-directory check-modules; \
	else echo "SKIPPED: the types of the console's modules, because npm is not here, or can't get TypeScript"; fi

# The types that the console's modules state in comments. Only this needs Node: a checkout runs, and is tested, without.
check-modules: hack/modules/node_modules
	hack/modules/node_modules/.bin/tsc --project hack/modules

# Licences of what Quorate runs on, advisories against it, secrets in commits: what a release must not have.
supply-chain: $(VENV)/.installed-dev
	$(BIN)/python -m hack.supply_chain

# The container image of this checkout, in build/image, by podman or buildah: docs/kubernetes-install.md.
image: $(VENV)/.installed-dev
	$(BIN)/python -m hack.release.image

# Everything of a release but its upload, in dist/: docs/install.md.
release: $(VENV)/.installed-dev
	$(BIN)/python -m hack.release

hack/modules/node_modules: hack/modules/package-lock.json
	npm ci --prefix hack/modules --no-audit --no-fund --loglevel=error
	touch $@

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Quorate needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"

# What the image installs is what is tested: the same versions, and from any index, so without their hashes.
$(VENV)/constraints.txt: deploy/image/requirements.txt | $(VENV)/bin/python
	sed 's/ --hash=.*//' $< > $@

$(VENV)/.installed: pyproject.toml $(VENV)/constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(VENV)/constraints.txt --editable ".[all]"
	touch $@

$(VENV)/.installed-dev: pyproject.toml $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(VENV)/constraints.txt --group dev
	touch $@

$(VENV)/.installed-console: pyproject.toml $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(VENV)/constraints.txt --group console
	touch $@

clean:
	rm -rf $(VENV) .venv-floors hack/modules/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
