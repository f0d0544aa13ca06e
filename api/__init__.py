"""How people and services get in: imported only as `abeyance.api`."""
