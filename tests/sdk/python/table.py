"""
Calls every RPC that the server says to support in full, as a user of the Python client would; run by test_table.py.

Prints one JSON line: the paths of the calls that ended with success, as the client's own transport saw them. The generation decides
which of the two forms of the sandbox calls are among them. QS_EXTRA_IMAGE is the name of an image that may be deleted.
"""

import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import grpclib.client

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
called = set()


def watch_calls():
    """A call has succeeded when its trailers came and were no error."""
    stream = grpclib.client.Stream
    trailers = stream.recv_trailing_metadata

    async def recv_trailing_metadata(self):
        await trailers(self)
        called.add(self._method_name)

    stream.recv_trailing_metadata = recv_trailing_metadata


watch_calls()

import modal  # noqa: E402
import modal.experimental  # noqa: E402
from modal._utils.async_utils import synchronizer  # noqa: E402
from modal._utils.blob_utils import blob_download, blob_upload  # noqa: E402
from modal.client import _Client  # noqa: E402
from modal.sandbox._sandbox import _Sandbox  # noqa: E402
from modal_proto import api_pb2  # noqa: E402
from modal_proto import task_command_router_pb2 as router_pb2  # noqa: E402

from kit import APP_NAME, V2, app, create, image, run, unique  # noqa: E402


def session():
    modal.Client.from_env().hello()
    modal.Workspace.from_context().settings.list()
    name = unique("env")
    modal.Environment.objects.create(name)
    assert name in [e.name for e in modal.Environment.objects.list()]
    modal.Environment.from_name(name).hydrate()
    modal.Environment.objects.delete(name)


@synchronizer.create_blocking
async def by_the_stub(client, method, request):
    return await getattr(client._stub, method)(request)


def apps():
    client = modal.Client.from_env()
    with modal.App(unique("run")).run():
        time.sleep(1)
    assert APP_NAME in [a.name for a in modal.experimental.list_deployed_apps()]
    app.set_tags({"tag": "value"})
    assert app.get_tags() == {"tag": "value"}
    modal.experimental.get_app_lifecycle(app.app_id)
    by_the_stub(client, "AppGetByDeploymentName", api_pb2.AppGetByDeploymentNameRequest(name=APP_NAME))
    by_the_stub(client, "AppGetInfo", api_pb2.AppGetInfoRequest(app_id=app.app_id))


def images():
    by_name = unique("image")
    image.build(app)
    image.publish(by_name)
    assert modal.Image.from_name(by_name).build(app).object_id == image.object_id
    assert modal.Image.from_id(image.object_id).build(app).object_id == image.object_id
    assert isinstance(list(image._logs()), list)
    assert isinstance(list(image.logs.fetch()), list)
    cli("image", "names", "list")
    cli("image", "names", "history", by_name)
    cli("image", "names", "delete", f"{by_name}:latest", "--yes")
    with tempfile.TemporaryDirectory() as d:
        local = pathlib.Path(d) / "file"
        local.write_text(by_name)
        image.add_local_file(local, "/etc/local", copy=True).build(app)
        large = pathlib.Path(d) / "large"
        large.write_bytes(os.urandom(5 << 20))
        image.add_local_file(large, "/large", copy=True).build(app)
    blobs(os.urandom(1000))
    extra = modal.Image.from_registry(os.environ["QS_EXTRA_IMAGE"])
    extra.build(app)
    modal.experimental.image_delete(extra.object_id)


@synchronizer.create_blocking
async def blobs(data):
    stub = (await _Client.from_env())._stub
    assert await blob_download(await blob_upload(data, stub), stub) == data


def sandboxes():
    name = unique("name")
    probe = modal.Probe.with_exec("true", interval_ms=100)
    sb = create("sh", "-c", "cat; echo end >&2", name=name, tags={"a": "1"}, readiness_probe=probe)
    sb.wait_until_ready(timeout=30)
    assert run(sb, "true")[2] == 0
    assert modal.Sandbox.from_name(APP_NAME, name).object_id == sb.object_id
    assert sb.object_id in [s.object_id for s in modal.Sandbox.list(app_id=app.app_id)]
    assert sb.get_tags() == {"a": "1"}
    sb.set_tags({"b": "2"})
    sb.reload_volumes()
    sb.stdin.write("one\n")
    sb.stdin.write_eof()
    sb.stdin.drain()
    sb.wait()
    assert (sb.stdout.read(), sb.stderr.read()) == ("one\n", "end\n")
    other = create(unencrypted_ports=[8000])
    assert list(other.tunnels()) == [8000]
    assert other.create_connect_token().token
    other._experimental_set_outbound_network_policy(outbound_cidr_allowlist=["10.0.0.0/8"])
    other._experimental_update_outbound_policy(modal.experimental.OutboundPolicy())
    if V2:
        other._experimental_set_name(unique("later"))
    cli("container", "list")
    streams(other.object_id)
    assert other.poll() is None
    other.terminate(wait=True)
    stopped = create()
    task = stopped._get_task_id()
    by_the_stub(modal.Client.from_env(), "TaskGetInfo", api_pb2.TaskGetInfoRequest(task_id=task))
    cli("container", "stop", task, "--yes")


@synchronizer.create_blocking
async def streams(sandbox_id):
    """What the client does in this form for large inputs, after broken connections and for sidecars alone."""
    sb = await _Sandbox.from_id(sandbox_id)
    task = await sb._get_task_id()
    router = await sb._get_command_router_client(task)

    async def start(exec_id):
        await router.exec_start(router_pb2.TaskExecStartRequest(task_id=task, exec_id=exec_id, command_args=["cat"],
                                                                stdout_config=1, stderr_config=1))
    await start("table-1")
    await router.exec_stdin_write(task, "table-1", 0, b"abc", False)
    assert (await router.exec_stdin_status(task, "table-1")).num_bytes_written == 3
    assert (await router.exec_poll(task, "table-1")).WhichOneof("exit_status") is None
    await router.exec_stdin_write(task, "table-1", 3, b"", True)
    assert (await router.exec_wait(task, "table-1")).code == 0
    await start("table-2")
    assert await router.exec_stdin_write_stream(task, "table-2", io.BytesIO(b"x" * 100_000)) == 100_000
    assert (await router.exec_wait(task, "table-2")).code == 0
    await router.container_list(router_pb2.TaskContainerListRequest(task_id=task))


def cli(*arguments):
    """The command line is a program of its own; its calls are seen by the audit alone."""
    subprocess.run([sys.executable, "-m", "modal", *arguments], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)


def secrets():
    name = unique("secret")
    modal.Secret.objects.create(name, {"ONE": "1"})
    secret = modal.Secret.from_name(name)
    secret.hydrate()
    secret.update({"TWO": "2"})
    assert secret.info(refresh=True).name == name
    assert name in [s.name for s in modal.Secret.objects.list()]
    modal.Secret.objects.delete(name)


def queues():
    name = unique("queue")
    q = modal.Queue.from_name(name, create_if_missing=True).hydrate()
    assert modal.Queue.from_id(q.object_id).hydrate().object_id == q.object_id
    q.put_many([1, 2])
    assert list(q.iterate(item_poll_timeout=0)) == [1, 2]
    assert (q.get(), q.len()) == (1, 1)
    q.clear()
    assert name in [x.name for x in modal.Queue.objects.list()]
    modal.Queue.objects.delete(name)
    with modal.Queue.ephemeral():
        pass


def dicts():
    name = unique("dict")
    d = modal.Dict.from_name(name, create_if_missing=True).hydrate()
    assert modal.Dict.from_id(d.object_id).hydrate().object_id == d.object_id
    d["k"] = 1
    assert ("k" in d, d["k"], d.len(), dict(d.items())) == (True, 1, 1, {"k": 1})
    assert d.pop("k") == 1
    d.clear()
    assert name in [x.name for x in modal.Dict.objects.list()]
    modal.Dict.objects.delete(name)
    with modal.Dict.ephemeral():
        pass


for part in (session, apps, images, sandboxes, secrets, queues, dicts):
    part()
cli("app", "stop", app.app_id, "--yes")
time.sleep(0.5)
print(json.dumps(sorted(called)), flush=True)
os._exit(0)
