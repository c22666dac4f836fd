"""What Penstock asks of the world, as Protocols; made real in `adapters/`."""
