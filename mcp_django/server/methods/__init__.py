"""One module for each area of the specification; `dispatcher.METHODS` lists what they serve."""
