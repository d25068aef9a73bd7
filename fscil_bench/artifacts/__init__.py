"""Shipped backbones and banks: one folder a backbone (see fscil_bench.backbones.store)."""
