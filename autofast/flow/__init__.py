"""Control flow and data flow of a program; knows Python and the model, nothing of training."""
