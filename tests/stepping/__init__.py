"""The shipped compiled modules, killed at every single instruction of every operation."""
