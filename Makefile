# Needs make and Python 3.11 or newer; everything else goes into .venv.
VENV := .venv
# What runs, and what is tested: the second takes a while longer to install.
RUN := $(VENV)/.installed
TEST := $(VENV)/.tested

# PYTHON=... chooses the interpreter. A name that exists may still not run,
# so each one is asked.
PYTHONS := $(or $(PYTHON),python3.11 python3.12 python3.13 python3)
SUITABLE := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))

# uv learns what pip was told; its lists have commas where pip's have spaces. With
# a folder of wheels torch comes from there, else uv picks the build for the driver.
comma := ,
empty :=
space := $(empty) $(empty)
export UV_FIND_LINKS ?= $(subst $(space),$(comma),$(strip $(PIP_FIND_LINKS)))
ifdef PIP_CERT
export SSL_CERT_FILE ?= $(PIP_CERT)
endif
BACKEND := $(if $(UV_FIND_LINKS),,--torch-backend=auto)
PACKAGES = -c constraints.txt -e '.[$(EXTRAS)]'

.PHONY: help demo serve test lint lock clean
.DELETE_ON_ERROR:

help: ## Show this list
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' $(MAKEFILE_LIST) | \
	  while IFS='	' read -r name text; do printf 'make %-6s %s\n' "$$name" "$$text"; done

demo: $(RUN) ## Fit, predict and explain on a small table
	@$(VENV)/bin/tabr demo

serve: $(RUN) ## Serve a small model, with a page to look at
	@$(VENV)/bin/tabr demo --serve --members 1

# One thread per worker: two workers must not fight over the cores.
test: lint ## Run every check, then the tests
	@OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -q -n 2

lint: $(TEST) ## Check style and types
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy

# For the container: versions with checksums, and no word on where files come from.
LOCK := pip compile -q --universal --python-version 3.11 --generate-hashes --upgrade \
  --no-header --no-annotate --no-emit-index-url --no-emit-find-links

lock: $(RUN) ## Renew the lock files of the container
	UV_FIND_LINKS= $(VENV)/bin/uv $(LOCK) -c constraints.txt --extra serve \
	  --extra report -o deploy/requirements.lock pyproject.toml deploy/build.in
	UV_FIND_LINKS= $(VENV)/bin/uv $(LOCK) -o deploy/sbom.lock deploy/sbom.in

clean: ## Remove the environment, caches and builds
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is written last, so a failure half way is tried again the next time.
$(RUN): EXTRAS := report,serve
$(TEST): EXTRAS := test
$(RUN) $(TEST): pyproject.toml constraints.txt
	@rm -f $@
	@$(VENV)/bin/python -m pip --version >/dev/null 2>&1 || { \
	  found=; \
	  for python in $(PYTHONS); do \
	    if $$python -c '$(SUITABLE)' 2>/dev/null; then found=$$python; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo 'No Python 3.11 or newer with venv among: $(PYTHONS).' >&2; \
	    echo 'Install one, or name it: make PYTHON=/path/to/python ...' >&2; \
	    exit 1; \
	  fi; \
	  echo "Creating $(VENV) with $$found"; \
	  $$found -m venv --clear $(VENV); \
	}
	@echo 'Installing tabr into $(VENV) (torch is large: this can take minutes)'
	@{ $(VENV)/bin/python -m pip install -q uv && \
	   $(VENV)/bin/uv pip install -q --python $(VENV)/bin/python \
	     --compile-bytecode $(BACKEND) $(PACKAGES); } || \
	  { echo 'uv did not succeed; trying pip' >&2; \
	    $(VENV)/bin/python -m pip install -q $(PACKAGES); }
	@touch $@
