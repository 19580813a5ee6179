"""What rules may see of a program: files, values, events, and the roles that loaders, models and
steps play.
"""
