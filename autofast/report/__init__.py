"""One module per output. Each takes plain data and returns text (or bytes); printing is the
business of ``cli``.
"""
