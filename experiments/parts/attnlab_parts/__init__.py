"""Networks and tasks of our experiments on formal languages and long inputs."""
