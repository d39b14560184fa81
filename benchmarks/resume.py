"""How long a resume takes: a job of 902,087 rows (3.6 GB) with all but the end done, opened in a fresh process.

    python -m benchmarks.resume [DIRECTORY] [--rows 902087] [--keep]

Measured is `Job.open` until the first row that is left is known: the first open (which reads every prompt), then,
with all rows but half of the last shard on disk, without seals (every shard is read) and with the seals that
genmon wrote then. Before each the kernel is asked to forget the files, so that reading the disk is in the time. The
memory is the process's peak resident set (VmHWM), the interpreter and its modules in it.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from genmon.config.schema import JobConfig, ModelConfig, RunConfig
from genmon.job.job import Job
from genmon.job.row import Completion, Message, Row
from genmon.job.shard_file import shard_path, sidecar_line, sidecar_path, training_line
from genmon.state import AnswerClass

SHARD_SIZE = 5000
_WORDS = (
    "the of and to in a is that for it as was with be by on not he his but at are this have from or had an they "
    'which one you were all her she there would their we him been has when who will no more if out so "said" what '
    "up its about than into them can only other time new some could these two may first then do any like my now"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?", help="a new folder for the job; default: a temporary one")
    parser.add_argument("--rows", type=int, default=902_087)
    parser.add_argument("--keep", action="store_true", help="leave the folder")
    parser.add_argument("--open", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.open:
        open_job(arguments.directory)
        return
    folder = arguments.directory or Path(tempfile.mkdtemp(prefix="genmon-resume-"))
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise SystemExit(f"{folder} is not empty: name a new folder.")
    try:
        write_prompts(folder, arguments.rows)
        print(f"{'open':<16}{'s':>8}{'CPU s':>8}{'peak MB':>10}  first row left", flush=True)
        measure("first", folder)
        write_rows(folder, arguments.rows)
        measure("without seals", folder)
        measure("with seals", folder)
    finally:
        if not arguments.keep:
            shutil.rmtree(folder)


def config_in(folder: Path) -> RunConfig:
    job = JobConfig(prompts=[str(folder / "prompts.jsonl")], output=str(folder / "out"), shard_size=SHARD_SIZE)
    return RunConfig(name="resume", model=ModelConfig(path="model"), job=job)


def measure(name: str, folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            forget(path)
    command = [sys.executable, "-m", "benchmarks.resume", "--open", str(folder)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    print(f"{name:<16}{told.strip()}", flush=True)


def forget(path: Path) -> None:
    """Ask the kernel to drop a file's pages."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


def open_job(folder: Path) -> None:
    """In the fresh process: the time and the memory until the first row left is known."""
    began, cpu = time.monotonic(), time.process_time()
    job = Job.open(config_in(folder))
    first = next(job.pending())
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    status = Path("/proc/self/status").read_text()
    peak_kb = int(status.partition("VmHWM:")[2].split()[0])
    job.close()
    print(f"{seconds:>8.1f}{cpu:>8.1f}{peak_kb * 1024 / 1e6:>10.0f}  {first.id}")


def texts() -> tuple[str, random.Random]:
    """Prose of a million characters to cut answers from, and the dice."""
    dice = random.Random(0)
    words = dice.choices(_WORDS.split(), k=240_000)
    return " ".join(word + (".\n" if number % 19 == 0 else "") for number, word in enumerate(words)), dice


def row_of(number: int, prose: str) -> Row:
    start = number * 37 % (len(prose) - 400)
    message = Message(role="user", content=prose[start : start + 280])
    return Row(position=number, id=f"regen-{number:07d}", turns=((message,),))


def write_prompts(folder: Path, count: int) -> None:
    prose, _ = texts()
    quoted = '{{"id": "{}", "messages": [{{"role": "user", "content": "{}"}}]}}\n'
    with (folder / "prompts.jsonl").open("w") as file:
        for number in range(count):
            row = row_of(number, prose)
            words = str(row.turns[0][0].content).replace('"', '\\"').replace("\n", "\\n")
            file.write(quoted.format(row.id, words))


def write_rows(folder: Path, count: int) -> None:
    """The shards and sidecars of all rows but half of the last shard, each shard in an order of finishing."""
    prose, dice = texts()
    directory = folder / "out"
    for number, start in enumerate(range(0, count, SHARD_SIZE)):
        positions = list(range(start, min(start + SHARD_SIZE, count)))
        if positions[-1] == count - 1:
            del positions[len(positions) // 2 :]
        dice.shuffle(positions)
        done = [completion(row_of(position, prose), prose, dice) for position in positions]
        sidecar_path(directory, number).write_bytes(b"".join(map(sidecar_line, done)))
        shard_path(directory, number).write_bytes(b"".join(map(training_line, done)))


def completion(row: Row, prose: str, dice: random.Random) -> Completion:
    start = dice.randrange(len(prose) - 10_000)
    thought, answer = int(dice.triangular(500, 5000, 800)), int(dice.triangular(100, 2700, 500))
    reply = Message(
        role="assistant",
        content=prose[start + thought : start + thought + answer],
        reasoning_content=prose[start : start + thought],
    )
    return Completion(
        row=row,
        conversation=(*row.turns[0], reply),
        answer_class=AnswerClass.COMPLETE,
        finish_reason="stop",
        prompt_tokens=75,
        completion_tokens=(thought + answer) // 4,
        reasoning_tokens=thought // 4,
        acceptance_length=2.8125,
        attempts=1,
        server=f"s{row.position % 4}",
        launch=f"s{row.position % 4}#1",
        started_at=1_790_000_000.25 + row.position,
        latency_s=(thought + answer) / 260,
    )


if __name__ == "__main__":
    main()
