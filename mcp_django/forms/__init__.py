"""Django forms in elicitation: fields to JSON Schema, answers to cleaned data."""
