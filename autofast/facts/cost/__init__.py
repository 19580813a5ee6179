"""What a training costs, estimated from the script alone: which rewrites are worth their lines.

``machine`` has the figures of a GPU, ``network`` follows a batch through a model, ``inputs`` says
what a batch is, ``step`` adds up a step of the training, ``gains`` answers the questions that rules
ask. What is not known stays unknown: it never counts against a rewrite.
"""
