"""The run file: what is accepted, and that every error is one sentence with file, line and field."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from genmon.config.demo import demo_config, write_demo_prompts
from genmon.config.load import load, override
from genmon.config.overrides import Override
from genmon.config.schema import JobConfig, ModelConfig, RunConfig
from genmon.errors import ConfigError

BASE = """\
[model]
path = "Qwen/Qwen3.6-27B"
[job]
prompts = ["p.jsonl"]
output = "out"
"""
CONFIGS = sorted((Path(__file__).parent.parent / "configs").glob("*.toml"))

Loader = Callable[[str], RunConfig]


@pytest.fixture
def loaded(tmp_path: Path) -> Loader:
    """Loads text as `run.toml` in the test's folder."""

    def load_text(text: str) -> RunConfig:
        path = tmp_path / "run.toml"
        path.write_text(text)
        return load(path)

    return load_text


def refused(loaded: Loader, text: str) -> str:
    """The sentence after the file's name; it is one line."""
    with pytest.raises(ConfigError) as caught:
        loaded(text)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence[sentence.index("run.toml") :]


def test_defaults_and_name(loaded: Loader) -> None:
    config = loaded(BASE)
    assert config.name == "run"
    assert config.model.name == "Qwen3.6-27B"
    assert config.servers.gpus == "all"
    assert config.simulation is None


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_ready_run_files_load(path: Path) -> None:
    config = load(path)
    assert config.model.name == "Qwen3.6-27B"
    context = config.servers.flags.get("context-length", 1 << 30)
    assert isinstance(context, int)
    assert config.sampling.max_tokens is not None
    assert config.sampling.max_tokens + 1024 <= context


def test_there_are_ready_run_files() -> None:
    assert {"demo", "qwen3.6-27b-rtx-pro-6000", "qwen3.6-27b-b200", "qwen3.6-27b-h200"} <= {p.stem for p in CONFIGS}


def test_paths_are_relative_to_the_run_file_and_expand(
    loaded: Loader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("DATA", "/data")
    (tmp_path / "weights").mkdir()
    config = loaded(
        """
        [model]
        path = "weights"
        [servers]
        python = "venv/bin/python"
        [job]
        prompts = ["a/../p.jsonl", "~/q.jsonl", "$DATA/*.jsonl", "${DATA}/r.jsonl"]
        output = "runs/x"
        """
    )
    assert config.model.path == str(tmp_path / "weights")
    assert config.servers.python == str(tmp_path / "venv/bin/python")
    assert config.job.prompts == [
        str(tmp_path / "p.jsonl"),
        "/home/someone/q.jsonl",
        "/data/*.jsonl",
        "/data/r.jsonl",
    ]
    assert config.output == tmp_path / "runs/x"


def test_a_hub_name_and_a_bare_interpreter_stay_as_they_are(loaded: Loader) -> None:
    config = loaded(BASE + '[servers]\npython = "python3.11"\n')
    assert config.model.path == "Qwen/Qwen3.6-27B"
    assert config.servers.python == "python3.11"


def test_a_folder_whose_name_looks_like_a_glob(tmp_path: Path) -> None:
    from genmon.job.prompts import find_files

    folder = tmp_path / "run [1]"
    folder.mkdir()
    (folder / "p.jsonl").write_text("")
    (folder / "run.toml").write_text(BASE)
    assert find_files(load(folder / "run.toml").job.prompts) == [folder / "p.jsonl"]


def test_yaml_is_the_same_run(loaded: Loader, tmp_path: Path) -> None:
    text = BASE + "[servers.flags]\ncontext-length = 8192\ntrust-remote-code = true\n[sampling]\ntop_p = 0.9\n"
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(tomllib.loads(text)))
    assert load(path) == loaded(text)


def test_a_yaml_section_with_nothing_in_it_has_its_defaults(tmp_path: Path) -> None:
    path = tmp_path / "run.yml"
    path.write_text(yaml.safe_dump(tomllib.loads(BASE)) + "sampling:\n  # max_tokens: 100\n")
    assert load(path).sampling.max_tokens is None


@pytest.mark.parametrize(
    ("added", "sentence"),
    [
        ("[servers.mtp]\nstep = 3", "line 7: servers.mtp.step is not a key; did you mean steps?"),
        ("[servers]\nmtp = {step = 3}", "line 7: servers.mtp.step is not a key; did you mean steps?"),
        ("[servers]\nmtp.step = 3", "line 7: servers.mtp.step is not a key; did you mean steps?"),
        ("max_tokens = 3", "line 6: job.max_tokens is not a key there; it belongs to [sampling]."),
        ("name = 'x'", "line 6: job.name is not a key there; it belongs above the first section."),
        ("[servers]\nbase-port = 1", "line 7: servers.base-port is not a key; did you mean base_port?"),
        ("[modell]\nx = 1", "line 6: modell is not a key; did you mean model?"),
        ("[limits]\nthe_temperature = 1", "did you mean sampling.temperature?"),
        ("[servers]\ncontext-length = 1", "(SGLang's launch flags go to [servers.flags])."),
        ("shard_size = 'many'", "line 6: job.shard_size must be a whole number, not text."),
        ("shard_size = 1.5", "line 6: job.shard_size must be a whole number, not a fraction."),
        ("shard_size = true", "line 6: job.shard_size must be a whole number, not true or false."),
        ("limit = 'x'", "line 6: job.limit must be a whole number, not text."),
        ("[servers]\ngpus = 'some'", "line 7: servers.gpus cannot be 'some'; it can be 'all' or a list."),
        ("[workers]\nconcurrency = 'x'", "workers.concurrency cannot be 'x'; it can be 'auto' or a whole number."),
        ("[simulation]\ngpu = 'b200'", "line 7: simulation.gpu cannot be 'b200'; it can be 'h200'."),
        ("[servers.flags]\na = 1\nb = {c = 1}", "line 8: servers.flags.b must be true or false, a number, text or"),
        ("[servers.env]\nA = 1", "line 7: servers.env.A must be text, not a whole number."),
        ("[servers]\nmtp = true", "line 7: servers.mtp must be a table, not true or false."),
        ("[sampling\n", "line 6: not TOML: Expected ']' at the end of a table declaration."),
        ("[job]\n", "line 6: not TOML: Cannot declare [job] twice."),
        ("x =", "line 6: not TOML:"),
    ],
)
def test_wrong_keys_and_types(loaded: Loader, added: str, sentence: str) -> None:
    assert sentence in refused(loaded, BASE + added + "\n")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "run.toml is empty"),
        ("[model]\npath = 'm'\n", "run.toml: the section [job] is missing: it must give prompts and output."),
        (BASE.replace('path = "Qwen/Qwen3.6-27B"', ""), "line 1: model.path is missing: add it to [model]."),
        (BASE.replace('["p.jsonl"]', '"p.jsonl"'), "line 4: job.prompts must be a list, not text."),
        (BASE.replace('["p.jsonl"]', "[]"), "line 4: job.prompts is empty"),
        (BASE.replace('"out"', '"$NOWHERE_SET/x"'), "line 5: job.output names $NOWHERE_SET, which is not set"),
        (BASE.replace('"out"', '""'), "line 5: job.output is empty"),
    ],
)
def test_what_is_missing(loaded: Loader, text: str, sentence: str) -> None:
    assert sentence in refused(loaded, text)


def test_a_key_inside_a_long_string_is_none(loaded: Loader) -> None:
    text = BASE + '[servers.env]\nNOTE = """\n[sampling]\ntop_p = 7\n"""\n[sampling]\ntop_p = 7\n'
    assert "line 12: sampling.top_p must be between 0 and 1, not 7" in refused(loaded, text)


@pytest.mark.parametrize(
    ("added", "sentence"),
    [
        ("shard_size = 0", "line 6: job.shard_size must be at least 1, not 0."),
        ("samples = 0", "job.samples must be at least 1, not 0."),
        ("limit = 0", "job.limit must be at least 1, not 0."),
        (
            '[servers.env]\nPROMETHEUS_MULTIPROC_DIR = "/x"',
            "line 7: servers.env.PROMETHEUS_MULTIPROC_DIR cannot be set: servers that share one show each other's",
        ),
        ("[sampling]\nmax_tokens = 0", "sampling.max_tokens must be at least 1, not 0."),
        ("[sampling]\ntemperature = -0.1", "sampling.temperature must be at least 0, not -0.1."),
        ("[sampling]\ntemperature = inf", "sampling.temperature must be at least 0, not inf."),
        ("[sampling]\ntop_p = 1.1", "sampling.top_p must be between 0 and 1, not 1.1."),
        ("[sampling]\ntop_p = 0", "sampling.top_p must be above 0: SGLang refuses 0."),
        ("[sampling]\ntop_k = 0", "sampling.top_k must be -1 (off) or at least 1"),
        ("[limits]\npause_above = nan", "limits.pause_above must be between 0 and 1, not nan."),
        ("[limits]\npause_above = 5", "limits.pause_above must be between 0 and 1, not 5."),
        ("[workers]\nconcurrency = 0", "workers.concurrency must be at least 1, not 0."),
        ("[servers]\nbase_port = 80", "servers.base_port must be between 1024 and 65000, not 80."),
        ("[simulation]\nloop_share = 2", "simulation.loop_share must be between 0 and 1, not 2."),
        ("[servers]\ngpus = []", "servers.gpus is empty"),
        ("[servers]\ngpus = [0, 1, 0]", "servers.gpus names a GPU twice"),
        ("[servers]\ngpus = [-1]", "servers.gpus names -1: indices begin at 0."),
        ("[servers.mtp]\nenabled = true\nsteps = 4", "draft_tokens must be steps + 1 = 5, not 4."),
        ("[servers]\nurls = ['localhost:30000']", "'localhost:30000': write it as http://host:port."),
        ("[servers]\nurls = ['http://h:1/v1']", "'http://h:1/v1': write it as http://host:port."),
        ("[servers]\nurls = ['http://h:1', 'http://h:1/']", "names http://h:1/ twice"),
        ("[servers]\nurls = ['http://h:1']\ngpus = [0]", "gpus, flags and mtp have no effect: remove them."),
        ("[servers]\nurls = ['http://h:1']\n[servers.mtp]\nenabled = true", "have no effect: remove them."),
        ("[servers]\nurls = ['http://h:1']\n[simulation]", "servers.urls and [simulation] exclude each other"),
        ("samples = 2\n[sampling]\ntemperature = 0", "line 6: at temperature 0 all 2 samples of a prompt would be the"),
        ("samples = 2\n[sampling]\ntop_k = 1", "at top_k 1 all 2 samples"),
        ("[servers.flags]\ncontext-length = 8192\n[sampling]\nmax_tokens = 8192", "leaves no room for a prompt"),
        ("[servers.flags]\nport = 1", "line 7: servers.flags.port cannot be set here: it is servers.base_port."),
        ("[servers.flags]\nenable-metrics = true", "cannot be set here: genmon always sets it."),
        ("[servers.flags]\nspeculative-num-steps = 3", "cannot be set here: it is servers.mtp.steps."),
        ("[servers.flags]\nbase-gpu-id = 1", "cannot be set here: it is servers.gpus."),
        ("[servers.flags]\ntp-size = 2", "servers.flags.tp-size = 2 is not supported: genmon runs one server a GPU."),
        (
            "[servers.flags]\nmax_running_requests = 2",
            "write flags as SGLang does, without the dashes in front: max-run",
        ),
    ],
)
def test_what_the_types_cannot_say(loaded: Loader, added: str, sentence: str) -> None:
    assert sentence in refused(loaded, BASE + added + "\n")


@pytest.mark.parametrize(
    "added",
    [
        "[servers.flags]\ntp-size = 1",
        "[servers]\ngpus = ['cpu', 'cpu']",
        "[servers.mtp]\nenabled = true\ntopk = 4\nsteps = 3\ndraft_tokens = 16",
        "[servers.flags]\nspeculative-attention-mode = 'decode'",
        "samples = 4\n[sampling]\ntemperature = 0.7",
        "[sampling]\ntop_k = -1\nmin_p = 0\ntemperature = 2",
        "[limits]\npause_above = 1",
        "[servers]\nurls = ['http://10.0.0.1:30000', 'https://box/']",
    ],
)
def test_what_is_right_is_let_pass(loaded: Loader, added: str) -> None:
    loaded(BASE + added + "\n")


@pytest.mark.parametrize(
    ("added", "sentence"),
    [
        ("sampling:\n\ttop_p: 1\n", "line 7: not YAML: found character"),
        ("job:\n  samples: 2\n", "line 6: not YAML: job is there twice, first on line 3."),
        ("on: 1\n", "the key True is not text: write it in quotes."),
        ("servers:\n  env:\n    1: 'x'\n", "line 7: servers.env: the key 1 is not text: write it in quotes."),
        ("sampling:\n  temperature: 1e0\n", "line 7: sampling.temperature must be a number, not text."),
        ("sampling: &a\n  again: *a\n", "line 7: sampling.again is not a key"),
    ],
)
def test_yaml_errors(tmp_path: Path, added: str, sentence: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("model:\n  path: m\njob:\n  prompts: [p.jsonl]\n  output: out\n" + added)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("gone.toml", None, "gone.toml cannot be read: No such file or directory."),
        ("run.json", b"{}", "run.json: a run file ends in .toml, .yaml or .yml."),
        ("run.toml", b"\xff\xfe", "run.toml is not UTF-8 text."),
        ("run.yaml", b"- a\n", "run.yaml must hold sections"),
    ],
)
def test_files_that_are_none(tmp_path: Path, name: str, content: bytes | None, sentence: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / name)
    assert sentence in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(BASE, encoding="utf-8-sig")
    assert load(path).model.name == "Qwen3.6-27B"


_KEYS = ["model", "job", "servers", "sampling", "path", "prompts", "output", "flags", "mtp", "gpus", "urls", "x"]
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(_KEYS), _VALUES, max_size=5))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_in_it_is_a_run_or_one_sentence(tmp_path: Path, table: dict[str, object]) -> None:
    path = tmp_path / "any.yaml"
    path.write_text(yaml.safe_dump(table, allow_unicode=True), encoding="utf-8")
    try:
        load(path)
    except ConfigError as error:
        assert str(error).startswith(str(path))


def test_an_override_is_named_instead_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(BASE)
    with pytest.raises(ConfigError, match=r"^option --top-p: sampling.top_p must be between 0 and 1, not 2.0\.$"):
        load(path, [Override("--top-p", ("sampling", "top_p"), 2.0)])


def test_an_override_over_a_section_that_is_none_is_the_files_error(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("sampling = 3\n" + BASE)
    with pytest.raises(ConfigError, match=r"line 1: sampling must be a table, not a whole number\.$"):
        load(path, [Override("--top-p", ("sampling", "top_p"), 0.5)])


def test_a_built_in_run_takes_overrides_and_survives_them_otherwise() -> None:
    config = RunConfig(model=ModelConfig(path="m"), job=JobConfig(prompts=["p"], output="o"), name="n")
    assert override(config, []) == config
    changed = override(config, [Override("--seed", ("sampling", "seed"), 3)])
    assert changed.sampling.seed == 3
    assert msgspec.structs.replace(changed, sampling=config.sampling) == config


def test_the_demo_is_a_right_run_and_its_prompts_are_the_same_each_time(tmp_path: Path) -> None:
    config = demo_config(tmp_path)
    assert override(config, []) == config
    assert config.simulation is not None
    assert config.servers.mtp.enabled
    prompts = Path(config.job.prompts[0])
    write_demo_prompts(prompts)
    first = prompts.read_bytes()
    prompts.unlink()
    write_demo_prompts(prompts)
    assert prompts.read_bytes() == first
    assert config.job.limit is not None
    assert len(first.splitlines()) >= config.job.limit


def test_the_ready_demo_has_prompts_of_one_and_of_several_turns() -> None:
    from genmon.job.prompts import Made, find_files, rows

    config = load(next(path for path in CONFIGS if path.stem == "demo"))
    made = list(rows(find_files(config.job.prompts), config.job))
    assert all(isinstance(each, Made) for each in made)
    turns = [len(row.turns) for each in made if isinstance(each, Made) for row in each.rows]
    assert len(made) == 64
    assert len(turns) == 64 * config.job.samples
    assert max(turns) > 1
