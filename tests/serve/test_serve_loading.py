"""What is loaded, kept, switched and told, without processes."""

import asyncio
from pathlib import Path

import pytest
from fake_versions import FakeVersion, models_of, put, run

from tonnage.serve.errors import InvalidRequest, LoadFailed, NoRoom, Unavailable, UnknownThing
from tonnage.serve.main_memory import GpuMemory
from tonnage.serve.memory_limits import MemoryLimits
from tonnage.serve.memory_needs import Needs, Question


def states(models) -> list[tuple[str, str, str]]:
    return [(each.name, each.version, each.state) for each in models.index()]


def test_the_newest_version_is_served_by_default(tmp_path: Path) -> None:
    put(tmp_path, "m", 1)
    put(tmp_path, "m", 10)
    put(tmp_path, "m", 9)

    async def check() -> None:
        models = models_of(tmp_path)
        await models.load("m")
        assert models.find("m").version == "10"
        assert [each.version for each in models.versions("m")] == ["10"]

    run(check())


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        ("latest { num_versions: 2 }", ["2", "3"]),
        ("all { }", ["1", "2", "3"]),
        ("specific { versions: [1, 3, 7] }", ["1", "3"]),
    ],
)
def test_a_version_policy_chooses(tmp_path: Path, policy: str, served: list[str]) -> None:
    for version in (1, 2, 3):
        put(tmp_path, "m", version)
    (tmp_path / "m" / "config.pbtxt").write_text(f"version_policy {{ {policy} }}")

    async def check() -> None:
        models = models_of(tmp_path)
        await models.load("m")
        assert [each.version for each in models.versions("m")] == served
        assert models.find("m").version == served[-1]
        assert models.find("m", served[0]).version == served[0]

    run(check())


def test_a_policy_that_chooses_nothing_is_told(tmp_path: Path) -> None:
    put(tmp_path, "m", 1)
    (tmp_path / "m" / "config.pbtxt").write_text("version_policy { specific { versions: 4 } }")

    async def check() -> None:
        with pytest.raises(LoadFailed, match="version_policy asks for none of the versions 1 "):
            await models_of(tmp_path).load("m")

    run(check())


def test_clients_ask_for_versions_that_are_there(tmp_path: Path) -> None:
    put(tmp_path, "m", 1)

    async def check() -> None:
        models = models_of(tmp_path)
        await models.load("m")
        assert models.find("m", "1") is models.find("m")
        for version in ("2", "9" * 5000):
            with pytest.raises(UnknownThing, match="no version"):
                models.find("m", version)
        with pytest.raises(InvalidRequest, match="whole numbers"):
            models.find("m", "one")
        with pytest.raises(UnknownThing, match="no model 'n'"):
            models.find("n")

    run(check())


@pytest.mark.parametrize("name", ["../x", "..", "", "a/b", "nobody", ".hidden", "x" * 5000, "a\0b", "\ud800"])
def test_names_that_are_no_models_are_unknown(tmp_path: Path, name: str) -> None:
    put(tmp_path / "models", "m", 1)
    put(tmp_path, "x", 1)

    async def check() -> None:
        models = models_of(tmp_path / "models")
        for change in (models.load, models.unload):
            with pytest.raises(UnknownThing, match="the repository has no model"):
                await change(name)
        assert states(models) == [("m", "", "")]

    run(check())


def test_a_version_that_has_not_changed_is_kept(tmp_path: Path) -> None:
    for version in (1, 2):
        put(tmp_path, "m", version)
    (tmp_path / "m" / "config.pbtxt").write_text("version_policy { all { } }")

    async def check() -> None:
        models = models_of(tmp_path)
        await models.load("m")
        first, second = models.versions("m")
        put(tmp_path, "m", 2, "other weights")
        put(tmp_path, "m", 3)
        await models.load("m")
        assert models.find("m", "1") is first
        assert models.find("m", "2") is not second
        assert [each.version for each in models.versions("m")] == ["1", "2", "3"]
        await asyncio.sleep(0)
        assert second.is_retired
        assert not first.is_retired

    run(check())


def test_another_configuration_loads_the_same_files_again(tmp_path: Path) -> None:
    put(tmp_path, "m", 1)

    async def check() -> None:
        models = models_of(tmp_path)
        await models.load("m")
        await models.load("m", '{"max_batch_size": 4}')
        changed = models.find("m")
        assert changed.configuration.max_batch_size == 4
        await models.load("m", '{"max_batch_size": "4", "version_policy": {"all": {}}}')
        assert models.find("m") is changed
        await models.load("m")
        assert models.find("m").configuration.max_batch_size == 0

    run(check())


def test_the_old_version_answers_until_the_new_one_is_warm(tmp_path: Path) -> None:
    put(tmp_path, "m", 1)

    async def check() -> None:
        models = models_of(tmp_path)
        await models.load_all(["m"])
        old = models.find("m")
        old.released.clear()  # a request is in flight
        put(tmp_path, "m", 2)
        FakeVersion.gate = asyncio.Event()
        loading = asyncio.create_task(models.load("m"))
        while len(FakeVersion.made) < 2:
            await asyncio.sleep(0.001)
        assert models.find("m") is old
        assert models.are_ready
        assert states(models) == [("m", "1", "READY"), ("m", "2", "LOADING")]
        FakeVersion.gate.set()
        await loading
        await asyncio.sleep(0)
        assert models.find("m").version == "2"
        assert states(models) == [("m", "1", "UNLOADING"), ("m", "2", "READY")]
        assert not old.is_closed
        old.released.set()
        while not old.is_closed:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        assert [each.to_json() for each in models.index()] == [
            {"name": "m", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"},
            {"name": "m", "version": "2", "state": "READY"},
        ]

    run(check())


def test_a_failed_reload_leaves_what_runs_and_says_why(tmp_path: Path) -> None:
    put(tmp_path, "m", 1)

    async def check() -> None:
        models = models_of(tmp_path)
        await models.load_all(["m"])
        old = models.find("m")
        put(tmp_path, "m", 1, "broken")
        with pytest.raises(LoadFailed, match=r"load failed for model 'm': .*model\.onnx: broken"):
            await models.load("m")
        assert models.find("m") is old
        assert models.are_ready
        (state,) = models.index()
        assert state.state == "READY"
        assert "broken" in state.reason
        put(tmp_path, "m", 1, "mended")
        await models.load("m")
        assert models.index()[0].reason == ""

    run(check())


def test_where_one_of_several_versions_fails_none_is_taken(tmp_path: Path) -> None:
    put(tmp_path, "m", 1)
    (tmp_path / "m" / "config.pbtxt").write_text("version_policy { all { } }")

    async def check() -> None:
        models = models_of(tmp_path)
        await models.load_all(["m"])
        put(tmp_path, "m", 2)
        put(tmp_path, "m", 3, "broken")
        with pytest.raises(LoadFailed, match="broken"):
            await models.load("m")
        assert states(models) == [("m", "1", "READY"), ("m", "3", "UNAVAILABLE")]
        assert [each.version for each in FakeVersion.made if each.is_closed] == ["2"]

    run(check())


def test_what_starts_badly_says_so_only_of_the_version_that_fails(tmp_path: Path) -> None:
    put(tmp_path, "m", 1)
    (tmp_path / "m" / "config.pbtxt").write_text("version_policy { all { } }")

    async def check() -> None:
        models = models_of(tmp_path)
        await models.load("m")
        put(tmp_path, "m", 2, "broken")
        await models.try_load("m")
        first, second = models.index()
        assert (first.state, first.reason) == ("READY", "")
        assert (second.state, "broken" in second.reason) == ("UNAVAILABLE", True)

    run(check())


def test_why_a_model_cannot_come_back_is_told(tmp_path: Path) -> None:
    put(tmp_path, "m", 1)

    async def check() -> None:
        models = models_of(tmp_path)
        await models.load("m")
        await models.unload("m")
        (tmp_path / "m" / "config.pbtxt").write_text("max_batch_size: -1")
        with pytest.raises(LoadFailed):
            await models.load("m")
        (state,) = models.index()
        assert (state.state, "max_batch_size" in state.reason) == ("UNAVAILABLE", True)

    run(check())


def test_the_index_goes_on_without_the_folder(tmp_path: Path) -> None:
    put(tmp_path / "models", "m", 1)

    async def check() -> None:
        models = models_of(tmp_path / "models")
        await models.load("m")
        (tmp_path / "models").rename(tmp_path / "away")
        assert states(models) == [("m", "1", "READY")]

    run(check())


def test_a_broken_configuration_leaves_what_runs(tmp_path: Path) -> None:
    put(tmp_path, "m", 1)

    async def check() -> None:
        models = models_of(tmp_path)
        await models.load_all(["m"])
        (tmp_path / "m" / "config.pbtxt").write_text('name: "m"\nmax_batch_size: -3\n')
        with pytest.raises(LoadFailed, match=r"config\.pbtxt:2: max_batch_size: must be at least 0"):
            await models.load("m")
        assert models.are_ready
        assert states(models) == [("m", "1", "READY")]
        assert "max_batch_size" in models.index()[0].reason

    run(check())


def test_the_server_is_not_ready_before_the_first_load_is_over(tmp_path: Path) -> None:
    put(tmp_path, "m", 1)

    async def check() -> None:
        models = models_of(tmp_path)
        assert not models.are_ready
        FakeVersion.gate = asyncio.Event()
        loading = asyncio.create_task(models.load_all(["m"]))
        while not FakeVersion.made:
            await asyncio.sleep(0.001)
        assert not models.are_ready
        assert states(models) == [("m", "1", "LOADING")]
        FakeVersion.gate.set()
        await loading
        assert models.are_ready

    run(check())


def test_a_server_without_models_is_ready(tmp_path: Path) -> None:
    async def check() -> None:
        models = models_of(tmp_path)
        await models.load_all([])
        assert models.are_ready

    run(check())


def test_a_model_that_cannot_be_loaded_first_makes_the_server_not_ready_and_others_are_served(tmp_path: Path) -> None:
    put(tmp_path, "bad", 1, "broken")
    put(tmp_path, "good", 1)

    async def check() -> None:
        models = models_of(tmp_path)
        await models.load_all(["bad", "good", "missing"])
        assert not models.are_ready
        assert models.find("good").is_ready
        assert states(models) == [("bad", "1", "UNAVAILABLE"), ("good", "1", "READY"), ("missing", "", "UNAVAILABLE")]
        with pytest.raises(Unavailable, match="no version of 'bad' is ready"):
            models.find("bad")
        await models.unload("bad")
        await models.unload("missing")
        assert models.are_ready

    run(check())


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ([], "has no versions"),
        (["model.onnx"], "has no versions"),
        (["zero/model.onnx", "01/model.onnx"], "has no versions"),
        (["1/weights.bin"], "has no model"),
        (["1/other/model.onnx"], "has no model"),
    ],
)
def test_a_folder_without_a_model_is_told(tmp_path: Path, files: list[str], reason: str) -> None:
    (tmp_path / "m").mkdir()
    for file in files:
        (tmp_path / "m" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "m" / file).write_text("fine")

    async def check() -> None:
        models = models_of(tmp_path)
        with pytest.raises(LoadFailed, match=f"{tmp_path}/m.* {reason}"):
            await models.load("m")
        assert models.index()[0].state == "UNAVAILABLE"

    run(check())


def test_the_file_of_a_model_may_have_another_name(tmp_path: Path) -> None:
    put(tmp_path, "m", 1, name="net.onnx")
    configuration = tmp_path / "m" / "config.pbtxt"

    async def check() -> None:
        models = models_of(tmp_path)
        configuration.write_text('default_model_filename: "net.onnx"')
        await models.load("m")
        assert (models.find("m").backend, models.find("m").path.name) == ("onnxruntime", "net.onnx")
        for name in ("../1/net.onnx", "/etc/passwd", "nothing.onnx"):
            configuration.write_text(f'default_model_filename: "{name}"')
            with pytest.raises(LoadFailed, match="default_model_filename"):
                await models.load("m")

    run(check())


def test_the_backend_decides_between_files(tmp_path: Path) -> None:
    put(tmp_path, "m", 1)
    put(tmp_path, "m", 1, name="model.pt2")
    (tmp_path / "m" / "config.pbtxt").write_text('platform: "pytorch_libtorch"')

    async def check() -> None:
        models = models_of(tmp_path)
        await models.load("m")
        assert models.find("m").path.name == "model.pt2"

    run(check())


def test_unloading_ends_all_versions_and_is_told(tmp_path: Path) -> None:
    put(tmp_path, "m", 1)

    async def check() -> None:
        models = models_of(tmp_path)
        await models.load_all(["m"])
        await models.unload("m")
        await asyncio.sleep(0.01)
        assert FakeVersion.made[0].is_closed
        assert [each.to_json() for each in models.index()] == [
            {"name": "m", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"}
        ]
        assert models.are_ready
        with pytest.raises(Unavailable):
            models.find("m")
        await models.load("m")
        assert models.find("m").is_ready

    run(check())


def test_changes_of_one_model_at_once_happen_one_after_the_other(tmp_path: Path) -> None:
    put(tmp_path, "m", 1)

    async def check() -> None:
        models = models_of(tmp_path)
        changes = [models.load("m", f'{{"max_batch_size": {number}}}') for number in range(8)]
        await asyncio.gather(*changes, models.unload("m"), models.load("m"), return_exceptions=True)
        await asyncio.sleep(0.01)
        alive = [each for each in FakeVersion.made if not each.is_closed]
        assert alive == models.all()
        assert len(alive) == 1

    run(check())


def test_a_load_goes_on_when_its_client_leaves(tmp_path: Path) -> None:
    put(tmp_path, "m", 1)

    async def check() -> None:
        models = models_of(tmp_path)
        FakeVersion.gate = asyncio.Event()
        asking = asyncio.create_task(models.load("m"))
        while not FakeVersion.made:
            await asyncio.sleep(0.001)
        asking.cancel()
        FakeVersion.gate.set()
        while not models.all():
            await asyncio.sleep(0.001)
        assert models.find("m").is_ready

    run(check())


def test_closing_ends_what_is_being_loaded(tmp_path: Path) -> None:
    put(tmp_path, "m", 1)

    async def check() -> None:
        models = models_of(tmp_path)
        FakeVersion.gate = asyncio.Event()
        asking = asyncio.create_task(models.load("m"))
        while not FakeVersion.made:
            await asyncio.sleep(0.001)
        await models.close()
        with pytest.raises(asyncio.CancelledError):
            await asking
        with pytest.raises(Unavailable, match="stopping"):
            await models.load("m")

    run(check())


# -- memory ---------------------------------------------------------------------------------------------------------------

MIB = 1 << 20


def limits(needs: int, *, free: int = 1000 * MIB, limit: int | None = None, gpu: int = 0) -> MemoryLimits:
    async def ask(question: Question) -> Needs:
        rows = question.configuration.max_batch_size
        return Needs(total_bytes=needs, weights_bytes=needs // 2, rows=rows)

    return MemoryLimits(
        limit_bytes=limit, ask=ask, free_main=lambda: free, gpu=lambda index: GpuMemory("H200", 2 * gpu, gpu)
    )


def test_a_model_that_does_not_fit_is_refused_with_the_numbers(tmp_path: Path) -> None:
    put(tmp_path, "m", 1)
    (tmp_path / "m" / "config.pbtxt").write_text("max_batch_size: 16 instance_group { count: 3 }")

    async def check() -> None:
        models = models_of(tmp_path, memory=limits(500 * MIB))
        with pytest.raises(NoRoom) as caught:
            await models.load("m")
        assert "m needs 1.46 GiB (3 instances of 500 MiB: weights 250 MiB, a batch of 16)" in caught.value.message
        assert "0.98 GiB are left of main memory" in caught.value.message
        assert (caught.value.http_status, caught.value.grpc_status) == (422, "RESOURCE_EXHAUSTED")
        assert not FakeVersion.made
        assert "needs 1.46 GiB" in models.index()[0].reason

    run(check())


def test_weights_that_are_too_large_are_refused_without_an_estimate(tmp_path: Path) -> None:
    put(tmp_path, "m", 1, "x" * 2000)

    async def check() -> None:
        async def ask(question: Question) -> Needs:
            raise AssertionError(question)

        with pytest.raises(NoRoom, match=r"needs 1.95 KiB .* 0.98 KiB are left"):
            await models_of(tmp_path, memory=MemoryLimits(ask=ask, free_main=lambda: 1000)).load("m")

    run(check())


def test_models_that_are_loaded_count_against_the_limit_until_they_are_gone(tmp_path: Path) -> None:
    for name in ("a", "b"):
        put(tmp_path, name, 1)

    async def check() -> None:
        models = models_of(tmp_path, memory=limits(300 * MIB, limit=500 * MIB))
        await models.load("a")
        with pytest.raises(NoRoom, match="200 MiB are left of the memory limit of 500 MiB"):
            await models.load("b")
        await models.unload("a")
        await asyncio.sleep(0.01)
        await models.load("b")

    run(check())


def test_a_failed_load_gives_its_memory_back(tmp_path: Path) -> None:
    put(tmp_path, "a", 1, "broken")
    put(tmp_path, "b", 1)

    async def check() -> None:
        models = models_of(tmp_path, memory=limits(300 * MIB, limit=500 * MIB))
        with pytest.raises(LoadFailed, match="broken"):
            await models.load("a")
        await models.load("b")
        assert models.find("b").is_ready

    run(check())


def test_each_gpu_holds_its_own_instances(tmp_path: Path) -> None:
    put(tmp_path, "m", 1)
    (tmp_path / "m" / "config.pbtxt").write_text("instance_group [ { count: 2 kind: KIND_GPU } ]")

    async def check() -> None:
        models = models_of(tmp_path, gpus=(0, 1), memory=limits(300 * MIB, free=0, gpu=500 * MIB))
        with pytest.raises(
            NoRoom, match=r"600 MiB \(2 instances of 300 MiB.* 500 MiB are left of the 0.98 GiB of GPU 0"
        ):
            await models.load("m")
        models = models_of(tmp_path, gpus=(0, 1), memory=limits(200 * MIB, free=2000, gpu=500 * MIB))
        await models.load("m")
        assert [place.gpu for place in models.find("m").places] == [0, 0, 1, 1]

    run(check())


def test_a_gpu_that_the_server_does_not_use_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "m", 1)
    (tmp_path / "m" / "config.pbtxt").write_text("instance_group { kind: KIND_GPU gpus: [5] }")

    async def check() -> None:
        with pytest.raises(LoadFailed, match="an instance_group of m names GPU 5; this server uses 0, 1"):
            await models_of(tmp_path, gpus=(0, 1)).load("m")

    run(check())


def test_on_a_server_without_gpus_everything_runs_on_the_processor(tmp_path: Path) -> None:
    put(tmp_path, "m", 1)
    (tmp_path / "m" / "config.pbtxt").write_text("instance_group [ { kind: KIND_GPU gpus: [5] count: 2 } ]")

    async def check() -> None:
        models = models_of(tmp_path)
        await models.load("m")
        assert [place.gpu for place in models.find("m").places] == [None, None]

    run(check())


# -- files that come with a request ---------------------------------------------------------------------------------------


def test_files_that_come_with_a_request_are_there_as_long_as_they_are_served(tmp_path: Path) -> None:
    put(tmp_path, "m", 1)

    async def check() -> None:
        models = models_of(tmp_path)
        await models.load("m", "{}", {"3/model.onnx": b"given"})
        first = models.find("m")
        assert (first.version, first.path.read_bytes()) == ("3", b"given")

        await models.load("m", "{}", {"3/model.onnx": b"other"})
        await asyncio.sleep(0.01)  # the old one ends
        assert not first.path.exists()
        assert models.find("m").path.read_bytes() == b"other"

        with pytest.raises(LoadFailed):
            await models.load("m", "[]", {"4/model.onnx": b"wrong"})
        assert models.find("m").path.read_bytes() == b"other"

        second = models.find("m")
        await models.load("m")
        await asyncio.sleep(0.01)  # the old one ends
        assert models.find("m").version == "1"
        assert not second.path.parents[2].exists()

    run(check())


@pytest.mark.parametrize(
    "path", ["", "/", "..", "../1/model.onnx", "1/../../x", "a\0b", "/".join("abcdefghij"), "x" * 300]
)
def test_paths_out_of_the_folder_are_refused(tmp_path: Path, path: str) -> None:
    async def check() -> None:
        with pytest.raises(InvalidRequest, match="names no file"):
            await models_of(tmp_path).load("m", "{}", {path: b""})

    run(check())


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "x" * 300])
def test_names_that_are_no_folders_are_refused(tmp_path: Path, name: str) -> None:
    async def check() -> None:
        with pytest.raises(InvalidRequest, match="no name of a model"):
            await models_of(tmp_path).load(name, "{}", {"1/model.onnx": b""})

    run(check())
