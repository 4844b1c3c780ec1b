"""Django forms as questions: fields to JSON Schema, answers to cleaned data."""
