"""
Registries of clouds: an access key of AWS is exchanged for a password, the key of a Google service account is one. The services are
stand-ins; the registry of AWS is Debian's own with the password that the stand-in gives out.
"""

import base64
import crypt
import json
import subprocess

import helpers
import pytest
import qsdaemon
from aws import Aws
from hostile import Hostile
from registry import Image, Registry, free_port, tar_of

KEY = {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret/of+the=key", "AWS_REGION": "eu-west-1"}


def image(text):
    return Image([tar_of({"f": text.encode()})])


@pytest.fixture(scope="module")
def aws():
    s = Aws(free_port())
    yield s
    s.stop()


@pytest.fixture(scope="module")
def ecr(aws):
    line = f"AWS:{crypt.crypt(aws.password, crypt.mksalt(crypt.METHOD_BLOWFISH, rounds=16))}\n"
    r = Registry(qsdaemon.make_dir("qs-ecr-"), htpasswd=line)
    r.push(image("of ECR"), "team/app:1", creds=f"AWS:{aws.password}")
    yield r
    r.stop()


@pytest.fixture(scope="module")
def google():
    s = Hostile(free_port())
    yield s
    s.stop()


@pytest.fixture(scope="module")
def cloud(aws, ecr, google):
    """A daemon that exchanges access keys at the stand-in."""
    import system_conftest
    instance = system_conftest.start(registry_insecure=f"{ecr.host} {aws.host} {google.host}", registry_ecr_endpoint=aws.url,
                                     registry_stall_s=2)
    yield helpers.Images(instance)
    system_conftest.finish(instance)


@pytest.fixture
def images(cloud, aws):
    aws.reset()
    for i in cloud.api.get("/v1/images").json()["items"]:
        if i["digest"]:
            cloud.api.delete(f"/v1/images/{i['id']}")
    return cloud


# --- Amazon ECR ---------------------------------------------------------------------------------------------------------------


def test_an_access_key(images, aws, ecr):
    assert images.pull(f"{ecr.host}/team/app:1", credentials=KEY)["digest"] == image("of ECR").digest
    assert len(aws.requests) == 1 and aws.regions == ["eu-west-1"]
    assert KEY["AWS_SECRET_ACCESS_KEY"] not in json.dumps(aws.requests)
    log = images.daemon.log_tail()
    assert KEY["AWS_SECRET_ACCESS_KEY"] not in log and aws.password not in log
    assert KEY["AWS_SECRET_ACCESS_KEY"] not in images.api.get("/v1/operations").text


def test_a_session_token(images, aws, ecr):
    aws.sessions["AKIAEXAMPLE"] = "session//token=="
    images.pull_fails(f"{ecr.host}/team/app:1", "permission_denied", "UnrecognizedClientException", "AWS_SESSION_TOKEN", credentials=KEY)
    images.pull(f"{ecr.host}/team/app:1", credentials={**KEY, "AWS_SESSION_TOKEN": "session//token=="})
    assert len(aws.regions) == 1


@pytest.mark.parametrize("change,words", [
    ({"AWS_SECRET_ACCESS_KEY": "another-secret"}, ["InvalidSignatureException", "AWS_SECRET_ACCESS_KEY does not belong"]),
    ({"AWS_ACCESS_KEY_ID": "AKIAUNKNOWN"}, ["UnrecognizedClientException", "AWS_ACCESS_KEY_ID is not one"]),
    ({"AWS_SESSION_TOKEN": "old-session-token"}, ["ExpiredTokenException", "AWS_SESSION_TOKEN has expired"]),
], ids=["secret", "id", "expired"])
def test_a_key_that_is_wrong(images, aws, ecr, change, words):
    if "AWS_SESSION_TOKEN" in change:
        aws.sessions["AKIAEXAMPLE"] = change["AWS_SESSION_TOKEN"]
        aws.expired.add(change["AWS_SESSION_TOKEN"])
    op = images.pull_fails(f"{ecr.host}/team/app:1", "permission_denied", aws.host, *words, credentials={**KEY, **change})
    # AWS quotes what was signed: nothing of that is told.
    told = json.dumps(op) + "".join(images.log(op)) + images.daemon.log_tail()
    for value in (*change.values(), KEY["AWS_SECRET_ACCESS_KEY"], "Canonical String"):
        assert value not in told
    assert aws.regions == []


@pytest.mark.parametrize("status,answer,code,words", [
    (200, b"not json", "unavailable", ["is no JSON"]),
    (200, b"{}", "unavailable", ["authorizationData[0].authorizationToken"]),
    (200, b'{"authorizationData": []}', "unavailable", ["authorizationData[0].authorizationToken"]),
    (200, b'{"authorizationData": [{"authorizationToken": 5}]}', "unavailable", ["authorizationData[0].authorizationToken"]),
    (200, b'{"authorizationData": [{"authorizationToken": "%%%"}]}', "unavailable", ["base64 of AWS:password"]),
    (200, b'{"authorizationData": [{"authorizationToken": "bm9jb2xvbg=="}]}', "unavailable", ["base64 of AWS:password"]),
    (200, b'{"authorizationData": [{"authorizationToken": "' + base64.b64encode(b"AWS:a\r\nb: c") + b'"}]}', "unavailable",
     ["base64 of AWS:password"]),
    (200, b" " * 100000, "too_large", ["more than 65536 bytes"]),
    (400, b'{"__type": "ThrottlingException"}', "rate_limited", ["ThrottlingException"]),
    (400, b'{"__type": "x#AccessDeniedException", "message": "User: arn:x"}', "permission_denied",
     ["AccessDeniedException", "ecr:GetAuthorizationToken"]),
    (400, b'{"__type": "InvalidSignatureException", "message": "Signature expired: 2020 is now earlier"}', "permission_denied",
     ["the clock of this machine"]),
    (400, b'{"__type": "Bad\\r\\nName"}', "permission_denied", ["answered 400 and no reason"]),
    (403, b"<html>", "permission_denied", ["answered 403 and no reason"]),
    (302, b"", "permission_denied", ["answered 302"]),
], ids=["no-json", "empty", "no-data", "number", "no-base64", "no-user", "line-ends", "endless", "throttled", "denied", "clock", "type", "page",
        "redirect"])
def test_what_else_aws_may_answer(images, aws, ecr, status, answer, code, words):
    aws.answer = status, answer
    images.pull_fails(f"{ecr.host}/team/app:1", code, *words, credentials=KEY)


def test_a_password_that_has_expired(images, aws, ecr):
    aws.expires_in_s = -5
    images.pull_fails(f"{ecr.host}/team/app:1", "unavailable", "has expired already", credentials=KEY)
    # One that the registry does not take any more:
    aws.reset()
    aws.password, right = "of yesterday".replace(" ", "-"), aws.password
    try:
        op = images.pull_fails(f"{ecr.host}/team/app:1", "permission_denied", "for these credentials", credentials=KEY)
        assert "of-yesterday" not in json.dumps(op)
    finally:
        aws.password = right


def test_trouble_that_passes(images, aws, ecr):
    aws.answers = [(500, b"{}"), (503, b"")]
    images.pull(f"{ecr.host}/team/app:1", credentials=KEY)
    assert len(aws.requests) == 3


@pytest.mark.parametrize("values,words", [
    ({"AWS_ROLE_ARN": "arn:aws:iam::1:role/x", "AWS_REGION": "eu-west-1"}, ["AWS_ROLE_ARN", "AWS_ACCESS_KEY_ID"]),
    ({"AWS_ACCESS_KEY_ID": "A", "AWS_REGION": "eu-west-1"}, ["has no AWS_SECRET_ACCESS_KEY"]),
    ({"AWS_ACCESS_KEY_ID": "A\r\nX: y", "AWS_SECRET_ACCESS_KEY": "s"}, ["AWS_ACCESS_KEY_ID", "character"]),
    ({"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "x" * 8192}, ["AWS_SESSION_TOKEN", "8191"]),
    ({"REGISTRY_USERNAME": "u"}, ["has no REGISTRY_PASSWORD"]),
    ({"SOMETHING": "else"}, ["REGISTRY_USERNAME", "SERVICE_ACCOUNT_JSON", "AWS_ACCESS_KEY_ID"]),
], ids=["role", "no-secret", "line-end", "long", "half", "none"])
def test_credentials_that_are_none(images, aws, ecr, values, words):
    for path, body in (("/v1/images:pull", {"ref": f"{ecr.host}/team/app:1"}), ("/v1/builds", {"dockerfile": f"FROM {ecr.host}/team/app:1"})):
        r = images.api.post(path, json={**body, "credentials": values})
        error = r.json()["error"]
        assert r.status_code in (400, 413, 501) and error["param"] == "credentials", r.text
        for word in words:
            assert word in error["message"]
        assert "arn:" not in r.text
    r = images.api.post("/v1/images:pull", json={"ref": f"{ecr.host}/team/app:1", "credentials": KEY, "username": "u"})
    assert r.status_code == 400 and "exclude each other" in r.text
    assert aws.requests == []


def test_a_region_that_nobody_named(images, aws, ecr):
    values = {k: v for k, v in KEY.items() if k != "AWS_REGION"}
    for region in ({}, {"AWS_REGION": "eu-west-1/x"}):
        images.pull_fails(f"{ecr.host}/team/app:1", "invalid_argument", "AWS_REGION", credentials={**values, **region})
    assert aws.requests == []


def test_a_build_and_the_command_line(images, aws, ecr, tmp_path):
    r = images.api.post("/v1/builds", json={"dockerfile": f"FROM {ecr.host}/team/app:1\nENV A=1\n", "credentials": KEY})
    assert r.status_code == 202, r.text
    op = images.wait(r.json())
    assert op["state"] == "succeeded", op
    assert "secret/of" not in json.dumps(images.get(op["image"]))
    command = [qsdaemon.build_dir() / "src/cli/quicksand"]
    env = {"HOME": "/nonexistent", "QUICKSAND_URL": images.daemon.url, "QUICKSAND_TOKEN": images.daemon.token, "PATH": "/usr/bin:/bin"}
    pull = [*command, "image", "pull", "-q", "--name", "by-cli", "--aws", f"{ecr.host}/team/app:1"]
    done = subprocess.run(pull, env={**env, **KEY}, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0 and images.get("by-cli")["id"] == done.stdout.strip(), done
    done = subprocess.run(pull, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 1 and "--aws: there is no variable AWS_ACCESS_KEY_ID" in done.stderr, done
    done = subprocess.run([*pull, "--username", "x"], env={**env, **KEY}, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 1 and "exclude each other" in done.stderr, done
    (tmp_path / "Dockerfile").write_text(f"FROM {ecr.host}/team/app:1\n")
    done = subprocess.run([*command, "build", "-q", "--refresh", "--aws", tmp_path], env={**env, **KEY}, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done
    assert len(aws.regions) == 3


def test_the_regions_own_service(make_daemon, aws, ecr):
    """Without a setting the service is found by the registry's name, and a registry that is none of AWS gets nothing."""
    from test_credentials import Proxy
    aws.reset()
    far = Hostile(free_port())
    proxy = Proxy(far)
    connects = []
    proxy.server.RequestHandlerClass.do_CONNECT = lambda rq: (connects.append(rq.path), rq.send_error(403))
    name = "012345678901.dkr.ecr.ap-south-2.amazonaws.com"
    images = helpers.Images(make_daemon(registry_proxy=proxy.url, registry_insecure=f"{name} {ecr.host}", registry_no_proxy=ecr.host))
    try:
        far.image, far.basic = image("far"), "Basic " + helpers.b64("AWS:x")
        images.pull_fails(f"{name}/a/b:1", "unavailable", "AWS (api.ecr.ap-south-2.amazonaws.com)", credentials=KEY)
        assert set(connects) == {"api.ecr.ap-south-2.amazonaws.com:443"}
        images.pull_fails(f"{ecr.host}/team/app:1", "invalid_argument", "is no registry of Amazon ECR", credentials=KEY)
        assert not any("secret/of" in str(headers) for _, headers in far.requests)
    finally:
        far.stop()
        proxy.server.shutdown()
        proxy.server.server_close()


# --- Google's registries --------------------------------------------------------------------------------------------------------

ACCOUNT = {"type": "service_account", "project_id": "p", "private_key_id": "1", "client_email": "a@p.iam.gserviceaccount.com",
           "private_key": "-----BEGIN PRIVATE KEY-----\nMIIEvQ==\n-----END PRIVATE KEY-----\n"}


@pytest.fixture
def artifacts(google):
    """A registry that sends to a token service, which wants the key as Google's does."""
    google.reset()
    google.image, google.token = image("of Google"), "the-token"
    google.token_basic = "Basic " + helpers.b64("_json_key:" + json.dumps(ACCOUNT))
    return google


def test_a_service_account(images, artifacts, tmp_path):
    op = images.pull_fails(f"{artifacts.host}/p/app:1", "permission_denied", "without credentials")
    op = images.pull_fails(f"{artifacts.host}/p/app:1", "permission_denied", "for these credentials",
                           credentials={"SERVICE_ACCOUNT_JSON": json.dumps({**ACCOUNT, "client_email": "b@x"})})
    assert "MIIEvQ" not in json.dumps(op) + "".join(images.log(op)) + images.daemon.log_tail()
    found = images.pull(f"{artifacts.host}/p/app:1", credentials={"SERVICE_ACCOUNT_JSON": json.dumps(ACCOUNT)})
    assert found["digest"] == artifacts.image.digest
    (tmp_path / "key.json").write_text(json.dumps(ACCOUNT))
    env = {"HOME": "/nonexistent", "QUICKSAND_URL": images.daemon.url, "QUICKSAND_TOKEN": images.daemon.token, "PATH": "/usr/bin:/bin"}
    done = subprocess.run([qsdaemon.build_dir() / "src/cli/quicksand", "image", "pull", "-q", "--name", "google-cli", "--gcp-key",
                           tmp_path / "key.json", f"{artifacts.host}/p/app:1"], env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0 and done.stdout.strip() == found["id"], done


@pytest.mark.parametrize("text,word", [
    ("not json", "is no JSON object"), ("[1]", "is no JSON object"), ("{}", "'type'"), (json.dumps({**ACCOUNT, "type": "authorized_user"}), "'type'"),
    (json.dumps({k: v for k, v in ACCOUNT.items() if k != "private_key"}), "'private_key'"),
    (json.dumps({**ACCOUNT, "private_key": "abc"}), "'private_key'"),
    (json.dumps({k: v for k, v in ACCOUNT.items() if k != "client_email"}), "'client_email'"),
    (json.dumps({**ACCOUNT, "client_email": 5}), "'client_email'"), (" " * 9000, "8191 bytes"),
], ids=["text", "list", "empty", "type", "no-key", "no-pem", "no-email", "number", "long"])
def test_a_service_account_that_is_none(images, artifacts, text, word):
    r = images.api.post("/v1/images:pull", json={"ref": f"{artifacts.host}/p/app:1", "credentials": {"SERVICE_ACCOUNT_JSON": text}})
    error = r.json()["error"]
    assert r.status_code in (400, 413) and error["param"] == "credentials" and word in error["message"], r.text
    assert "SERVICE_ACCOUNT_JSON" in error["message"] and "MIIEvQ" not in r.text
    assert artifacts.requests == []
