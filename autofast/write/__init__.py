"""What to write, and where: arguments, values carried along calls, spellings, places for set-up."""
