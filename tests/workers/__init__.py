"""Several workers behind one address: nothing that is said may depend on which of them says or hears it."""
