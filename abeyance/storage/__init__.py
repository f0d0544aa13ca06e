"""How values travel, and where those are kept that are too large or too secret to travel openly."""
