"""What a device agent does in each phase of a step. Wired by `agents.device_agent`."""
