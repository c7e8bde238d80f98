"""The Cloud protocol over aioboto3."""
