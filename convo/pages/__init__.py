"""Pages for a browser, each one whole file: no script, no font, nothing from anywhere else."""
