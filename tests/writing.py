"""A process that writes a job's rows and tells on its standard output what became durable, for tests to kill.

    python -m tests.writing RUN.json [LARGEST_FILE_B]

With a largest file it is as if the disk were full, until a line comes in on standard input. Answers grow, so that
later shards meet it when earlier ones did not.
"""

from __future__ import annotations

import resource
import sys
import threading
import time
from pathlib import Path

import msgspec

from genmon.config.schema import RunConfig
from genmon.job.job import Job
from genmon.job.row import Completion, Failure
from tests.rows import completion


def main() -> None:
    config = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=RunConfig)
    job = Job.open(config)
    job.on_durable = tell
    if len(sys.argv) > 2:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), hard))
        threading.Thread(target=make_room, args=[hard], daemon=True).start()
    for number, row in enumerate(job.pending()):
        job.submit(completion(row, f"Answer to {row.id}. " * (5 + number // 20)))
        if number % 50 == 49:
            time.sleep(0.02)
    trouble = None
    while job.rows_done < job.rows_total:
        if job.trouble != trouble:
            trouble = job.trouble
            print(f"trouble {job.rows_done} {trouble}", flush=True)
        time.sleep(0.01)
    job.close()
    print("closed", flush=True)


def tell(settled: list[Completion | Failure]) -> None:
    print("durable", *(each.row.id for each in settled), flush=True)


def make_room(limit: int) -> None:
    sys.stdin.readline()
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


if __name__ == "__main__":
    main()
