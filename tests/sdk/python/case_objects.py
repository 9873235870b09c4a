"""Secrets, queues, dicts, apps, environments and credentials through the Python client."""

import time

import modal
import modal.exception as ex
from kit import APP_NAME, app, raises, run, sandbox, unique


def test_app_lookup():
    assert modal.App.lookup(APP_NAME).app_id == app.app_id
    with raises(ex.NotFoundError):
        modal.App.lookup(unique("nobody"))


def test_secret_by_name():
    name = unique("secret")
    modal.Secret.objects.create(name, {"ONE": "1", "TWO": "2"})
    with raises(ex.AlreadyExistsError):
        modal.Secret.objects.create(name, {"ONE": "1"})
    with sandbox(secrets=[modal.Secret.from_name(name, required_keys=["ONE"])]) as sb:
        assert run(sb, "sh", "-c", "echo $ONE$TWO")[0] == "12\n"
    with raises(ex.Error, "THREE"):
        modal.Secret.from_name(name, required_keys=["THREE"]).hydrate()
    assert name in [s.name for s in modal.Secret.objects.list()]
    modal.Secret.objects.delete(name)
    with raises(ex.NotFoundError):
        modal.Secret.from_name(name).hydrate()


def test_unknown_secret():
    with raises(ex.NotFoundError):
        modal.Secret.from_name(unique("nobody")).hydrate()


def test_queue():
    with modal.Queue.ephemeral() as q:
        q.put("one")
        q.put_many([2, {"three": 3}])
        assert q.len() == 3
        assert q.get() == "one"
        assert q.get_many(5) == [2, {"three": 3}]
        assert q.get(block=False) is None


def test_queue_partitions():
    with modal.Queue.ephemeral() as q:
        q.put("a", partition="A")
        q.put("none")
        assert (q.len(), q.len(partition="A"), q.len(total=True)) == (1, 1, 2)
        assert q.get(partition="A") == "a"
        q.clear(all=True)
        assert q.len(total=True) == 0


def test_queue_by_name():
    name = unique("queue")
    with raises(ex.NotFoundError):
        modal.Queue.from_name(name).hydrate()
    q = modal.Queue.from_name(name, create_if_missing=True)
    q.put(1)
    assert modal.Queue.from_name(name).get() == 1
    modal.Queue.objects.delete(name)


def test_queue_iterate():
    with modal.Queue.ephemeral() as q:
        q.put_many([1, 2, 3])
        assert list(q.iterate(item_poll_timeout=0.5)) == [1, 2, 3]
        assert q.len() == 3


def test_dict():
    with modal.Dict.ephemeral() as d:
        d["a"] = 1
        d.put("b", {"x": [1, 2]})
        assert d["a"] == 1 and d.get("b") == {"x": [1, 2]} and d.get("c", "none") == "none"
        assert "a" in d and "c" not in d and d.len() == 2
        d.update(c=3)
        assert sorted(d.keys()) == ["a", "b", "c"]
        assert dict(d.items()) == {"a": 1, "b": {"x": [1, 2]}, "c": 3}
        assert d.pop("a") == 1
        with raises(KeyError):
            d["a"]
        d.clear()
        assert d.len() == 0


def test_dict_put_if_absent():
    with modal.Dict.ephemeral() as d:
        assert d.put("k", 1, skip_if_exists=True) is True
        assert d.put("k", 2, skip_if_exists=True) is False
        assert d["k"] == 1


def test_dict_by_name():
    name = unique("dict")
    d = modal.Dict.from_name(name, create_if_missing=True)
    d["k"] = "v"
    assert modal.Dict.from_name(name)["k"] == "v"
    modal.Dict.objects.delete(name)
    with raises(ex.NotFoundError):
        modal.Dict.from_name(name).hydrate()


def test_when_objects_were_made():
    before = time.time() - 1
    for kind in (modal.Queue, modal.Dict):
        name = unique("info")
        made = kind.from_name(name, create_if_missing=True).hydrate()
        listed = {o.name: o.info() for o in kind.objects.list()}
        for info in (made.info(), kind.from_name(name).info(), kind.from_id(made.object_id).info(), listed[name]):
            assert info.name == name and before < info.created_at.timestamp() < time.time() + 1, info
        kind.objects.delete(name)
    name = unique("info")
    modal.Secret.objects.create(name, {"A": "1"})
    info = modal.Secret.from_name(name).info()
    assert info.name == name and before < info.created_at.timestamp() < time.time() + 1, info
    modal.Secret.objects.delete(name)


def test_wrong_credentials():
    client = modal.Client.from_credentials("ak-nobody", "as-wrong")
    with raises(ex.AuthError):
        modal.App.lookup("x", create_if_missing=True, client=client)


def test_a_function_answers_clearly():
    start = time.monotonic()
    with raises(ex.Error):
        modal.Function.from_name(unique("app"), "f").hydrate()
    assert time.monotonic() - start < 10


def test_a_volume_answers_clearly():
    start = time.monotonic()
    with raises(ex.Error):
        modal.Volume.from_name(unique("volume")).hydrate()
    assert time.monotonic() - start < 10
