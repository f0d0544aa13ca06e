"""Values and their schemas: the model of a state, JSON Schema, the validation and cost of answers.

Every room from `authoring` up imports it; it imports storage and the wire. Start at `state_model`.
"""
