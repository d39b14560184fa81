"""The recent past: seconds, minutes, marks, and how much is kept."""

from __future__ import annotations

import msgspec

from genmon.history import History, Track
from genmon.state import GpuSample, RunPhase, ServerPhase, ServerState, State


def at(
    taken_at: float, power_w: float | None = 500.0, launches: int = 1, argv: tuple[str, ...] = ("--tp", "1")
) -> State:
    server = ServerState(
        host="here",
        name="s0",
        url="http://127.0.0.1:1",
        phase=ServerPhase.READY,
        since=0.0,
        gpu_uuid="GPU-0",
        tokens_per_s=taken_at,
        in_flight=4,
        launches=launches,
        argv=argv,
    )
    gpu = GpuSample(host="here", index=0, uuid="GPU-0", name="H200", taken_at=taken_at, power_w=power_w)
    return State(run="past", phase=RunPhase.RUNNING, taken_at=taken_at, started_at=0.0, servers=(server,), gpus=(gpu,))


def test_five_minutes_of_seconds_and_twelve_hours_of_minutes_are_kept_and_no_more() -> None:
    history = History()
    for second in range(13 * 3600):
        history.add(at(float(second)))
    track = history.track("s0")
    assert [point.at for point in track.seconds] == [13 * 3600 - 300.0 + n for n in range(300)]
    assert len(track.minutes) == 720
    assert [point.at for point in track.minutes][-2:] == [777 * 60.0, 778 * 60.0]
    assert track.minutes[-1].tokens_per_s == 778 * 60 + 29.5


def test_a_minute_is_the_mean_of_what_was_known_in_it() -> None:
    history = History()
    for second in range(60, 120):
        history.add(at(float(second), power_w=400.0 if second < 90 else None))
    history.add(at(120.0))
    (minute,) = history.track("s0").minutes
    assert minute.at == 60.0
    assert minute.power_w == 400.0
    assert minute.acceptance_length is None


def test_a_relaunch_leaves_a_mark_that_names_the_changed_flags() -> None:
    history = History()
    history.add(at(1.0, launches=1))
    history.add(at(2.0, launches=2, argv=("--tp", "1", "--speculative-algorithm=NEXTN")))
    history.add(at(3.0, launches=3, argv=("--tp", "1", "--speculative-algorithm=NEXTN")))
    first, second = history.track("s0").marks
    assert first.at == 2.0
    assert first.text == "+speculative-algorithm NEXTN"
    assert second.text == "restarted"


def test_a_mark_groups_a_flag_with_its_value_and_leaves_ports_out() -> None:
    history = History()
    history.add(at(1.0, launches=1, argv=("python", "--a", "16", "--b", "--port", "30000", "--c", "x", "y")))
    history.add(at(2.0, launches=2, argv=("python", "--a", "64", "--port", "30001", "--c", "x", "z", "--d")))
    assert history.track("s0").marks[0].text == "−b, a 16→64, c x y→x z, +d"


def test_a_state_seen_twice_counts_once() -> None:
    history = History()
    for _ in range(3):
        history.add(at(1.0))
    assert len(history.track("s0").seconds) == 1


def test_tracks_cross_the_wire_unchanged() -> None:
    history = History()
    for second in range(200):
        history.add(at(float(second), launches=1 + second // 100))
    tracks = history.tracks()
    crossed = msgspec.msgpack.decode(msgspec.msgpack.encode(tracks), type=tuple[Track, ...])
    assert History(crossed).tracks() == tracks
