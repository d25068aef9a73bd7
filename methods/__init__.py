"""The built-in methods, one file each, registered as an outside plugin would be (see pyproject.toml)."""
