"""EFFECTIVELY_ONCE: each input's outputs and state changes take effect exactly once, even after crashes."""
