"""The run file: its shape (`schema`), and how it is read (`load`)."""
