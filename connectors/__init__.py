"""The built-in connectors, one module each, and the register of all installed connectors."""
