"""Declaration of a model: options, hooks, exposed fields, codecs and forms."""
