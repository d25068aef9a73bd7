"""fscil-bench: a benchmark harness for few-shot class-incremental learning."""

__version__ = "0.1.0"
