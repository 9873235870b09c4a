"""Images that are built: layers of commands, local files, secrets, names, failures."""

import os
import pathlib
import tempfile

import modal
import modal.exception
from modal._utils.async_utils import synchronizer
from modal_proto import api_pb2

from kit import GENERATION, app, image, raises, run, unique


def output(img, *argv):
    sb = modal.Sandbox.create(app=app, image=img, timeout=300)
    try:
        out, err, code = run(sb, *argv)
        assert code == 0, (out, err)
        return out
    finally:
        sb.terminate()


def test_commands_environment_and_workdir():
    img = image.run_commands("echo built >/built", "mkdir -p /srv/x").env({"COLOR": "blue"}).workdir("/srv/x")
    assert output(img, "sh", "-c", "cat /built; pwd; echo $COLOR") == "built\n/srv/x\nblue\n"


def test_dockerfile_commands():
    img = image.dockerfile_commands("ARG A=1", "RUN echo $A \\", "  >/a", "ENV B=2", "USER 1000")
    assert output(img, "sh", "-c", "cat /a; echo $B; id -u") == "1\n2\n1000\n"


def test_local_files():
    with tempfile.TemporaryDirectory() as at:
        root = pathlib.Path(at)
        (root / "tree/sub").mkdir(parents=True)
        (root / "tree/one").write_text("one")
        (root / "tree/sub/two").write_text("two")
        (root / "big").write_bytes(b"x" * 3_000_000)
        img = image.add_local_dir(root / "tree", "/tree", copy=True).add_local_file(root / "big", "/big", copy=True)
        img = img.run_commands("cat /tree/one /tree/sub/two >/both")
        assert output(img, "sh", "-c", "cat /both; wc -c </big") == "onetwo3000000\n"


def test_the_same_definition_is_the_same_image():
    command = f"echo {unique('x')} >/x"
    a, b = image.run_commands(command), image.run_commands(command)
    a.build(app)
    b.build(app)
    assert a.object_id == b.object_id
    c = image.run_commands(command, force_build=True)
    c.build(app)
    assert c.object_id != a.object_id


def test_secrets_are_for_the_command_alone():
    img = image.run_commands("test ${#TOKEN} = 6 && echo seen >/seen", secrets=[modal.Secret.from_dict({"TOKEN": "s3cr3t"})])
    assert output(img, "sh", "-c", "cat /seen; echo ${TOKEN:-none}") == "seen\nnone\n"


def test_a_failed_command():
    img = image.run_commands("echo the reason; exit 7")
    with raises(modal.exception.Error, "exit code 7"):
        img.build(app)


def test_dockerfiles():
    with tempfile.TemporaryDirectory() as at:
        root = pathlib.Path(at)
        (root / "data").write_text("from the context")
        (root / "Dockerfile").write_text("FROM base AS one\nRUN echo 1 >/one\nFROM base\nCOPY data /data\nCOPY --from=one /one /one\n")
        img = modal.Image.from_dockerfile(root / "Dockerfile", context_dir=root)
        assert output(img, "sh", "-c", "cat /data /one") == "from the context1\n"


def test_secrets_count_by_their_values():
    """Every secret out of a dict is a new one; what is built with the same values is the same."""
    def built(value):
        return image.run_commands("echo $TOKEN | wc -c >/n", secrets=[modal.Secret.from_dict({"TOKEN": value})]).build(app).object_id

    first, second = unique("one"), unique("two")
    assert built(first) == built(first)
    assert built(first) != built(second)


def test_build_arguments_and_context_files():
    with tempfile.TemporaryDirectory() as at:
        root = pathlib.Path(at)
        (root / "requirements.txt").write_text("# none\n")
        (root / "Dockerfile").write_text("FROM base\nARG WHO=nobody\nRUN echo $WHO >/who\n")
        img = modal.Image.from_dockerfile(root / "Dockerfile", build_args={"WHO": "somebody"})
        img = img.dockerfile_commands("COPY requirements.txt /req", context_dir=root)
        assert output(img, "cat", "/who", "/req") == "somebody\n# none\n"


def test_command_and_entrypoint_of_an_image():
    """A sandbox without a command runs what the image says; one with a command runs that."""
    img = image.entrypoint(["echo", "from"]).cmd(["the image"])
    sb = modal.Sandbox.create(app=app, image=img, timeout=300)
    sb.wait()
    assert (sb.stdout.read(), sb.returncode) == ("from the image\n", 0)
    sb = modal.Sandbox.create("echo", "mine", app=app, image=img, timeout=300)
    sb.wait()
    assert sb.stdout.read() == "mine\n"


def test_shell():
    img = image.shell(["/bin/bash", "-euc"]).run_commands("[[ a == a ]] && echo $BASH_VERSION >/shell")
    assert output(img, "cat", "/shell").strip() != ""


@synchronizer.create_blocking
async def call(client, method, request):
    return await getattr(client._stub, method)(request)


def names_of(prefix):
    client = modal.Client.from_env()
    found, token = [], ""
    while True:
        page = call(client, "ImageListTags", api_pb2.ImageListTagsRequest(tag_prefix=prefix, max_objects=2, page_token=token))
        assert len(page.items) <= 2
        found += [(i.tag, i.image_id) for i in page.items]
        token = page.next_page_token
        if not token:
            return found


def test_names():
    client = modal.Client.from_env()
    name, env = unique("Name"), unique("env")
    a = image.env({"A": unique("a")}).build(app)
    b = image.env({"A": unique("b")}).build(app)
    a.publish(name)
    for tag in ("v1", "v2", "v3"):
        a.publish(f"{name}:{tag}")
    b.publish(name)
    assert modal.Image.from_name(name).build(app).object_id == b.object_id
    assert modal.Image.from_name(f"{name}:v1").build(app).object_id == a.object_id
    assert names_of(name) == [(f"{name}:latest", b.object_id), *((f"{name}:v{i}", a.object_id) for i in (1, 2, 3))]
    history, token = [], ""
    while True:
        page = call(client, "ImageTagRevisions", api_pb2.ImageTagRevisionsRequest(tag=name, max_objects=1, page_token=token))
        history += [(i.image_id, i.revision_id[:3]) for i in page.items]
        token = page.next_page_token
        if not token:
            break
    assert history == [(b.object_id, "ir-"), (a.object_id, "ir-")]
    modal.Environment.objects.create(env)
    a.publish(name, environment_name=env)
    assert modal.Image.from_name(name, environment_name=env).build(app).object_id == a.object_id
    assert modal.Image.from_name(f"{env}/{name}").build(app).object_id == a.object_id
    call(client, "ImageNameDelete", api_pb2.ImageNameDeleteRequest(tag=f"{name}:v2"))
    with raises(modal.exception.NotFoundError, "not found"):
        modal.Image.from_name(f"{name}:v2").build(app)
    with raises(modal.exception.NotFoundError, "not found"):
        call(client, "ImageNameDelete", api_pb2.ImageNameDeleteRequest(tag=f"{name}:v2"))
    assert [t for t, _ in names_of(name)] == [f"{name}:latest", f"{name}:v1", f"{name}:v3"]
    modal.Environment.objects.delete(env)
    with raises(modal.exception.NotFoundError):
        modal.Image.from_name(unique("nobody")).build(app)


def test_ids():
    img = image.env({"X": unique("x")}).build(app)
    again = modal.Image.from_id(img.object_id)
    assert output(again.run_commands("echo on top >/top"), "cat", "/top") == "on top\n"
    modal.experimental.image_delete(img.object_id)
    with raises(modal.exception.NotFoundError, "Could not find image with ID"):
        modal.Image.from_id(img.object_id).build(app)
    with raises(modal.exception.NotFoundError, "No Image with ID"):
        modal.experimental.image_delete("im-0000000000000000000000")
    again = image.env({"Y": unique("y")}).build(app)
    assert modal.Image.from_id(again.object_id).build(app).object_id == again.object_id


def test_logs_of_layers():
    words = [unique("word") for _ in range(3)]
    one = image.run_commands(f"echo {words[0]}")
    two = one.run_commands(f"echo {words[1]}; echo {words[2]} >&2")
    two.build(app)
    last = "".join(e.message for e in two.logs.fetch())
    assert words[1] in last and words[2] in last and words[0] not in last
    every = "".join(e.message for e in two.logs.fetch(layers=None))
    assert every.index(words[0]) < every.index(words[1])
    tail = list(two.logs.tail(1))
    assert len(tail) == 1 and tail[0].source == "stdout"
    assert [s for s in modal.Image.from_registry("base").build(app).logs.fetch()] == []


def test_logs_of_a_failure():
    word = unique("why")
    img = image.run_commands(f"echo {word}; exit 3")
    with raises(modal.exception.Error, word):
        img.build(app)
    assert word in "".join(e.message for e in img.logs.fetch())


def test_joining_again_repeats_nothing():
    """The stream is taken up after a line: only what comes later is sent, and the result."""
    client = modal.Client.from_env()
    img = image.run_commands(f"for i in 1 2 3 4 5; do echo line $i; done; echo {unique('x')}")    # a step that is known prints nothing
    img.build(app)

    def join(entry):
        return responses(client, api_pb2.ImageJoinStreamingRequest(image_id=img.object_id, timeout=5, last_entry_id=entry,
                                                                   include_logs_for_finished=True))
    whole = join("")
    lines = [r for r in whole if r.task_logs]
    assert whole[-1].result.status == api_pb2.GenericResult.GENERIC_STATUS_SUCCESS and whole[-1].eof
    middle = next(i for i, r in enumerate(lines) if r.task_logs[0].data == "line 3\n")
    rest = [r.task_logs[0].data for r in join(lines[middle].entry_id) if r.task_logs]
    assert rest == [r.task_logs[0].data for r in lines[middle + 1:]] and rest[:2] == ["line 4\n", "line 5\n"]


@synchronizer.create_blocking
async def responses(client, request):
    return [r async for r in client._stub.ImageJoinStreaming.unary_stream(request)]


def test_what_cannot_be_built():
    client = modal.Client.from_env()
    for commands, text in (([], "no FROM"), (["RUN true"], "the first instruction must be FROM"), (["FROM base", "RUNN true"], "RUNN"),
                           (["FROM base", "COPY --from=nowhere /x /x", "RUN true"], "nowhere")):
        with raises(modal.exception.Error, text):
            r = call(client, "ImageGetOrCreate", api_pb2.ImageGetOrCreateRequest(image=api_pb2.Image(dockerfile_commands=commands),
                                                                                app_id=app.app_id))
            r = r.result if r.result.status else responses(client, api_pb2.ImageJoinStreamingRequest(image_id=r.image_id, timeout=50))[-1].result
            assert r.status == api_pb2.GenericResult.GENERIC_STATUS_FAILURE
            raise modal.exception.Error(r.exception)


def test_scratch():
    img = modal.Image.from_scratch()
    img.build(app)
    assert img.object_id.startswith("im-")


def test_a_registry_of_amazon():
    ref, keys = f"{os.environ['QS_ECR']}/team/python-{GENERATION}:1", {"AWS_ACCESS_KEY_ID": os.environ["QS_ECR_KEY"], "AWS_REGION": "eu-west-1"}
    bad = modal.Secret.from_dict({**keys, "AWS_SECRET_ACCESS_KEY": "another"})
    with raises(modal.exception.Error, "InvalidSignatureException"):
        modal.Image.from_aws_ecr(ref, secret=bad).build(app)
    role = modal.Secret.from_dict({"AWS_ROLE_ARN": "arn:aws:iam::1:role/x", "AWS_REGION": "eu-west-1"})
    with raises(modal.exception.Error, "AWS_ROLE_ARN"):
        modal.Image.from_aws_ecr(ref, secret=role).build(app)
    good = modal.Secret.from_dict({**keys, "AWS_SECRET_ACCESS_KEY": os.environ["QS_ECR_SECRET"]})
    built = modal.Image.from_aws_ecr(ref, secret=good).build(app)
    # The keys of the secret tell the kind where the client does not.
    assert modal.Image.from_registry(ref, secret=good).build(app).object_id.startswith("im-") and built.object_id.startswith("im-")


def test_a_registry_of_google():
    ref = f"{os.environ['QS_GOOGLE']}/p/python-{GENERATION}:1"
    bad = modal.Secret.from_dict({"SERVICE_ACCOUNT_JSON": '{"type": "service_account", "client_email": "x"}'})
    with raises(modal.exception.Error, "private_key"):
        modal.Image.from_gcp_artifact_registry(ref, secret=bad).build(app)
    good = modal.Secret.from_dict({"SERVICE_ACCOUNT_JSON": os.environ["QS_GOOGLE_KEY"]})
    assert modal.Image.from_gcp_artifact_registry(ref, secret=good).build(app).object_id.startswith("im-")
