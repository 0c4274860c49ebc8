"""Shared by tests that read Parquet files from an S3 server on loopback."""

from object_store import ObjectStore
from remote_parquet_case import RemoteParquetCase

KEY, SECRET = "AKIDLOCKSTEPTEST", "se/cret+of+the+test"
ESCAPED = f"{KEY}:{SECRET.replace('/', '%2F').replace('+', '%2B')}@"


class ObjectStoreCase(RemoteParquetCase):
    settings = "AWS_"
    secrets = (KEY, SECRET, ESCAPED)

    def setUp(self):
        super().setUp()
        self.store = self.enterContext(ObjectStore("clicks"))

    def own_environment(self):
        return {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_EC2_METADATA_DISABLED": "true", "HOME": str(self.folder)}

    def expect_error(self, name, *parts, arguments, **environment):  # pylint: disable=arguments-renamed
        super().expect_error(f"{name}: ", *parts, arguments=arguments, **environment)
