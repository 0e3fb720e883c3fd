"""The production engine: one SGLang server per cell, launched, measured, proven and stopped."""
