"""The model: a Llama that reads packed rows and a paged KV cache.

Reading order: `model_config.py` (sizes), `llama.py` (the forward), `attention.py` (three paths, one call),
`kv_cache.py`, `sampling.py`; then, for how weights get here, `checkpoint.py`. Importing this package imports
no torch; its modules do.
"""
