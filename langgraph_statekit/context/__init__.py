"""What goes into a model's prompt: summaries, compression, layers. Its public names are those of the package."""
