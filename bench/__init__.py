"""Speed beside the rivals: one harness, one run, side by side (`make bench`)."""
