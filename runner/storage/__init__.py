"""Object storage (``s3://``, ``gs://``) and folders by URL (``file://``), each with a copy of what is used on this
machine."""
