"""Values: the model of a state, reducers, answers, and the schemas that they are held against."""
