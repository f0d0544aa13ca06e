"""Rules whose condition is CLIPS text: read, checked, and evaluated by CLIPS itself."""
