"""Pictures of the dashboard, and how they are made."""
