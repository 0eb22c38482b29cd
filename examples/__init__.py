"""Programs that use shmq as anybody would; run them by path: python examples/demo.py."""
