"""SGLang servers: how they are launched, watched and ended."""
