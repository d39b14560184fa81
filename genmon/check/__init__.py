"""`genmon check`: whether a run could run, said before anything starts. It changes nothing."""
