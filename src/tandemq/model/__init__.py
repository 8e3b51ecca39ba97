"""The nouns of the system: frozen values with no behaviour beyond their own arithmetic."""
