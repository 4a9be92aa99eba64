"""A server that speaks S3, and the environment by which a user gets in."""

from collections.abc import Iterator
from contextlib import contextmanager

ACCESS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """Gives the environment. There is one bucket, `bucket`, and all servers of a process have the same."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    try:
        import boto3

        keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
        client = boto3.client("s3", endpoint_url=address, **keys)
        client.create_bucket(Bucket="bucket")
        client.close()
        yield {**ACCESS, "FSSPEC_S3_ENDPOINT_URL": address}
    finally:
        server.stop()
