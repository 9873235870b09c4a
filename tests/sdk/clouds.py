"""
Stand-ins for Amazon's and Google's registries, with the services that give out passwords and tokens for them. One image each.
"""

import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "images"))

from aws import Aws  # noqa: E402
from helpers import b64  # noqa: E402
from hostile import Hostile  # noqa: E402
from registry import Image, free_port, tar_of  # noqa: E402

ACCOUNT = json.dumps({"type": "service_account", "client_email": "a@p.iam.gserviceaccount.com",
                      "private_key": "-----BEGIN PRIVATE KEY-----\nMIIEvQ==\n-----END PRIVATE KEY-----\n"})


class Clouds:
    def __init__(self):
        self.aws, self.ecr, self.google = Aws(free_port()), Hostile(free_port()), Hostile(free_port())
        self.ecr.image, self.google.image = (Image([tar_of({"f": text})]) for text in (b"amazon", b"google"))
        self.ecr.basic = "Basic " + b64(f"AWS:{self.aws.password}")
        self.google.token = "the-token"
        self.google.token_basic = "Basic " + b64(f"_json_key:{ACCOUNT}")

    def options(self):
        """Of the daemon."""
        return {"registry_insecure": f"{self.aws.host} {self.ecr.host} {self.google.host}", "registry_ecr_endpoint": self.aws.url}

    def env(self):
        """Of the client programs."""
        (key, secret), = self.aws.keys.items()
        return {"QS_ECR": self.ecr.host, "QS_ECR_KEY": key, "QS_ECR_SECRET": secret, "QS_GOOGLE": self.google.host, "QS_GOOGLE_KEY": ACCOUNT}

    def stop(self):
        for server in (self.aws, self.ecr, self.google):
            server.stop()
