"""The screen's parts: each a function from a picture and a size to lines of text."""
