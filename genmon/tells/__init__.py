"""The tell: what is wrong, by which numbers, and which key mends it. Pure: states in, tells out, no clock."""
