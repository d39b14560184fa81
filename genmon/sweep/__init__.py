"""`genmon sweep`: what each setting would bring, measured on this machine."""
