"""The rules: one module and one card each, installed as ``autofast.rules``. See
docs/writing-rules.md.
"""
