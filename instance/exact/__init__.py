"""EFFECTIVELY_ONCE: each input's outputs and state changes are there once, whatever dies in between."""
