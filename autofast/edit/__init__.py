"""Edits that rules ask for, and how many of them become one new text."""
