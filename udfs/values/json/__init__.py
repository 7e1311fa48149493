"""JSON: payloads to canonical texts, and columns of objects to Arrow structs."""
