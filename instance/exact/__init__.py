"""EFFECTIVELY_ONCE: each input's outputs and state changes exist exactly once, whatever crashes in between."""
