PYTHONS = python3.14 python3.13 python3.12 python3.11 python3
VENV = .venv
PIP = $(VENV)/bin/python -m pip --disable-pip-version-check install --quiet -c constraints.txt
# Two workers share two cores: one thread each for NumPy's BLAS. A file's tests stay in one worker, which then compiles each shape once.
# Workers and the processes that tests start read the bytecode of the first.
PYTEST = PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MPLBACKEND=agg $(VENV)/bin/pytest -n 2 --dist loadfile --durations=15
# Networks of other libraries: their tests run in an environment of their own, PyTorch's wheel being what it is.
# Shapes and types of annotations, executed: 40 % of the processor time of a run.
TYPES = --jaxtyping-packages=neuromanifold,neuromanifold_papers,beartype.beartype
# Programs as users compile them; conftest.py has most of XLA's optimisations out of the tests.
OPTIMISED = XLA_FLAGS= JAX_DISABLE_MOST_OPTIMIZATIONS=0
ADAPTERS = $(wildcard tests/*/test_torch_*.py tests/models/test_flax.py tests/models/test_haiku.py tests/models/test_transformers.py)
TORCH_CPU = --extra-index-url https://download.pytorch.org/whl/cpu --retries 1

.PHONY: help install demo test test-types test-torch test-browser test-docs acceptance verify defects lint docs bench peers
.NOTPARALLEL:

help:
	@echo 'make demo          inspect the built-in example network and write report/index.html'
	@echo 'make test          the whole test suite'
	@echo 'make test-torch    the tests that need PyTorch (its CPU build), Flax or Haiku, in .venv-torch'
	@echo 'make test-browser  the pages in headless Chromium, where there is one'
	@echo 'make test-docs     the built documentation, every tutorial, the wheel in an empty environment'
	@echo 'make test-types    the whole test suite, compiled as users compile, with the types and shapes of all annotations executed'
	@echo 'make acceptance    the same with forty times the random draws'
	@echo 'make verify        every statement of the papers on all of its cases'
	@echo 'make defects       plant twenty defects in the core; each must be noticed by a test'
	@echo 'make lint          ruff and pyright'
	@echo 'make docs          the documentation, into site/'
	@echo 'make bench         speed and memory against the alternatives'
	@echo 'make peers         install those alternatives, each in its own environment'
	@echo 'make install       .venv with everything the targets above need (they call it themselves)'

install: .venv/.installed

demo: .venv/.installed-core
	.venv/bin/neuromanifold inspect

test: .venv/.installed
	$(PYTEST) $(ARGS)

test-torch: VENV = .venv-torch
# PyTorch 2.13 takes bfloat16 instructions that some virtual machines announce and do not have.
test-torch: .venv-torch/.installed
	ONEDNN_MAX_CPU_ISA=AVX512_CORE $(PYTEST) $(ADAPTERS) $(ARGS)

# Playwright drives the browser that the machine has; it stands in a folder of its own, beside .venv. Without either the pages are not opened, and one line says so.
test-browser: .venv/.installed
	@browser=$$(command -v chromium || command -v chromium-browser || command -v google-chrome); \
	if test -z "$$browser"; then \
	  echo 'make test-browser: no Chromium on PATH, so the pages were not opened (Debian and Ubuntu: apt install chromium)'; \
	elif ! timeout 60 "$$browser" --headless --no-sandbox --disable-gpu --dump-dom about:blank >/dev/null 2>&1; then \
	  echo "make test-browser: $$browser does not start, so the pages were not opened"; \
	elif ! test -f .venv-browser/.installed && ! { $(PIP) --target .venv-browser playwright && touch .venv-browser/.installed; }; then \
	  echo 'make test-browser: Playwright could not be installed, so the pages were not opened'; \
	else \
	  PYTHONPATH=.venv-browser MPLBACKEND=agg .venv/bin/pytest -q tests/test_browser.py $(ARGS); \
	fi

test-docs: docs
	$(OPTIMISED) $(PYTEST) tests_site $(ARGS)

test-types: .venv/.installed
	$(OPTIMISED) $(PYTEST) $(TYPES) $(ARGS)

verify: .venv/.installed-core
	.venv/bin/neuromanifold verify $(ARGS)

defects: .venv/.installed
	.venv/bin/python tools/plant_defects.py $(ARGS)

acceptance: .venv/.installed
	$(OPTIMISED) $(PYTEST) --draws 10 $(TYPES) $(ARGS)

lint: .venv/.installed
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/pyright

docs: .venv/.installed
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet

bench: .venv/.installed-core
	.venv/bin/neuromanifold bench $(ARGS)

peers:
	benchmarks/peers/install

# A stamp is touched last, so that an interrupted install is repeated.
.venv/.installed-core: pyproject.toml constraints.txt
	@$(create_venv)
	@echo 'Installing neuromanifold into .venv'
	@$(PIP) -e .
	@touch $@

.venv/.installed: pyproject.toml constraints.txt
	@$(create_venv)
	@echo 'Installing neuromanifold and its development tools into .venv'
	@$(PIP) -e '.[dev,docs]'
	@touch .venv/.installed-core $@

.venv-torch/.installed: VENV = .venv-torch
.venv-torch/.installed: pyproject.toml constraints.txt
	@$(create_venv)
	@echo 'Installing neuromanifold, PyTorch (CPU), Flax, Haiku and Transformers into .venv-torch'
	@$(PIP) $(TORCH_CPU) torch
	@$(PIP) -e '.[dev,torch,flax,haiku]' transformers
	@touch $@

# A .venv that works is kept; a missing or broken one is made anew. A python3.x on PATH may be a launcher that does not run, so each is tried.
define create_venv
if $(VENV)/bin/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then exit 0; fi; \
found=; \
for python in $(PYTHONS); do \
  "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
  found=$$python; \
  "$$python" -c 'import ensurepip, venv' 2>/dev/null || continue; \
  echo "Creating $(VENV) with $$("$$python" --version)"; \
  exec "$$python" -m venv --clear $(VENV); \
done; \
if [ -n "$$found" ]; then \
  echo "$$found cannot create a virtual environment: its modules venv and ensurepip are missing; install them (Debian and Ubuntu: apt install python3-venv) and run make again." >&2; \
else \
  echo "neuromanifold needs Python 3.11 or newer, and none of $(PYTHONS) on PATH is one; install it (Debian and Ubuntu: apt install python3 python3-venv) and run make again." >&2; \
fi; \
exit 1
endef
