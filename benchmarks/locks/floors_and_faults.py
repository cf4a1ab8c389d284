"""Every lock provider against the cheapest correct use of the same server, and against other libraries.

    python -m benchmarks.locks.floors_and_faults --backends redis,zk --processes 2,8,32 --hold 0,5 --seconds 6 --peers
    python -m benchmarks.locks.floors_and_faults --what loss,kill --backends file,redis,zk,dynamodb,s3
    python -m benchmarks.locks.floors_and_faults --what idle --backends memory,redis --leases 1,1000,10000

N processes take and give back one lock as often as they can, each contender in turn and several times over. Each holder
counts in shared memory and looks for others inside, so exclusion is checked in the same run. A ratio says something,
an absolute number belongs to the machine. The servers are those that scripts/ensure_tools.sh all installs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from .._report import machine, show
from . import cases as lock_cases
from . import servers as lock_servers

STRICT = ("redis", "zk")  # serve in order
RATE_MIN = {"redis": 0.9, "zk": 0.9, "dynamodb": 0.8, "s3": 0.8}
FAIR_MIN = {name: 0.95 if name in STRICT else 0.6 for name in lock_servers.NAMES}
LOSS_S_MAX = 1.0
TURNS_MIN = {name: 200 if name in STRICT else 60 for name in lock_servers.NAMES}  # fewer, and fairness is chance
HEAD = """\
| | processes, hold | per s (changed hands) | ratio | least / most served | wait p50, p99 ms | p99 bound \
| CPU us: clients, server | requests | verdict |
|---|---|---:|---:|---:|---:|---:|---:|---:|---|"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", default="file,redis,zk,dynamodb,s3")
    parser.add_argument("--what", default="handoff", help="handoff,loss,kill,idle")
    parser.add_argument("--processes", default="2,8,32")
    parser.add_argument("--hold", default="0,5", help="milliseconds")
    parser.add_argument(
        "--seconds",
        type=float,
        default=6.0,
        help="for each contender in each row, longer where turns are few; of idling: at least 20",
    )
    parser.add_argument("--rounds", type=int, default=2, help="in so many parts")
    parser.add_argument("--peers", action="store_true", help="also other libraries")
    parser.add_argument("--times", type=int, default=5, help="of loss and kill")
    parser.add_argument("--leases", default="1,1000,10000")
    parser.add_argument("--folder", type=Path, help="on the disk that is to be measured; default: a temporary folder")
    parser.add_argument("--json", action="store_true", help="one line of JSON for each row instead of tables")
    args = parser.parse_args()
    show("machine", machine("redis", "kazoo", "boto3", "obstore", "filelock"))
    missed = 0
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        for backend in args.backends.split(","):
            try:
                with lock_servers.start(backend, Path(name, backend)) as server:
                    for what in args.what.split(","):
                        missed += CASES[what](args, backend, server)
            except RuntimeError as e:
                print(f"{backend}: not measured: {e}", flush=True)
                missed += 1
    return 1 if missed else 0


def handoff(args: argparse.Namespace, backend: str, server: lock_servers.Server) -> int:
    """Rows of the table; the number of missed bars."""
    if backend not in lock_servers.FLOORS:
        return 0
    contenders = ["ours", "floor"]
    if args.peers:
        contenders += import_module(f"benchmarks.locks.floors.{lock_servers.FLOORS[backend]}").PEERS
    processes = sorted(map(int, args.processes.split(",")))
    missed = 0
    contest = lock_cases.Contest(backend, server, contenders, processes[-1])
    try:
        if not args.json:
            print(HEAD)
        for hold_ms in map(float, args.hold.split(",")):
            for n in processes:
                found = contest.cell(n, hold_ms / 1000, args.seconds, args.rounds, TURNS_MIN[backend])
                wrong = judge(backend, found)
                missed += len(wrong)
                report(args, backend, n, hold_ms, found, wrong)
    finally:
        contest.end()
    return missed


def judge(backend: str, found: dict[str, dict]) -> list[str]:
    """The bars that ours missed."""
    ours, floor = found["ours"], found["floor"]
    wrong = []
    if any(each["violations"] for each in found.values()):
        wrong.append("two holders: " + ", ".join(name for name, each in found.items() if each["violations"]))
    if backend in RATE_MIN and ours["per_s"] < RATE_MIN[backend] * floor["per_s"]:
        wrong.append(f"rate < {RATE_MIN[backend]:g}")
    if ours["least"] < FAIR_MIN[backend] * ours["most"]:
        wrong.append(f"fairness < {FAIR_MIN[backend]:g}")
    if backend in STRICT and ours["wait_ms_p99"] > ours["bound_ms"]:
        floors = f"floor: {floor['late']} in {floor['late_bursts']}"
        wrong.append(f"p99 ({ours['late']} late waits in {ours['late_bursts']} bursts; {floors})")
    return wrong


def report(
    args: argparse.Namespace, backend: str, n: int, hold_ms: float, found: dict[str, dict], wrong: list[str]
) -> None:
    floor = found["floor"]
    for name, each in found.items():
        if args.json:
            row = {"backend": backend, "contender": name, "processes": n, "hold_ms": hold_ms, **each}
            row["ratio"] = each["per_s"] / floor["per_s"]
            row["missed"] = wrong if name == "ours" else []
            print(json.dumps(row), flush=True)
            continue
        verdict = "; ".join(wrong) or "ok" if name == "ours" else "two holders" if each["violations"] else ""
        fair = f"{each['least']}/{each['most']} = {each['least'] / max(1, each['most']):.2f}"
        print(
            f"| {backend} {name} | {n}, {hold_ms:g} ms | {each['per_s']:.0f} ({each['changed_hands']:.2f}) "
            f"| {each['per_s'] / floor['per_s']:.2f} | {fair} | {each['wait_ms_p50']:.1f}, {each['wait_ms_p99']:.1f} "
            f"| {each['bound_ms']:.1f} | {each['client_cpu_us']:.0f}, {each['server_cpu_us']:.0f} "
            f"| {round(each['requests'], 1) or ''} | {verdict} |",
            flush=True,
        )


def loss(args: argparse.Namespace, backend: str, server: lock_servers.Server) -> int:
    if not server.pids:
        print(f"{backend} loss: there is no server to stop")
        return 0
    facts = lock_cases.loss(backend, server, args.times)
    return told(args, backend, "loss", facts, facts["worst_s"] <= LOSS_S_MAX)


def kill(args: argparse.Namespace, backend: str, server: lock_servers.Server) -> int:
    if backend == "memory":
        return 0
    facts = lock_cases.kill(backend, server, args.times)
    return told(args, backend, "kill", facts, facts["worst_s"] <= facts["allowed_s"])


def idle(args: argparse.Namespace, backend: str, server: lock_servers.Server) -> int:
    missed = 0
    for facts in lock_cases.idle(server, [int(n) for n in args.leases.split(",")], max(20.0, args.seconds)):
        missed += told(args, backend, "idle", facts, not facts["lost"] and facts["requests_per_third"] <= 1.1)
    return missed


def told(args: argparse.Namespace, backend: str, what: str, facts: dict, good: bool) -> int:
    if args.json:
        print(json.dumps({"backend": backend, "what": what, **facts, "ok": good}), flush=True)
    else:
        print(f"{backend} {what}: {'ok' if good else 'MISSED'} {json.dumps(rounded(facts))}", flush=True)
    return 0 if good else 1


def rounded(facts: object) -> object:
    if isinstance(facts, dict):
        return {name: rounded(value) for name, value in facts.items()}
    if isinstance(facts, list):
        return [rounded(value) for value in facts]
    return round(facts, 3) if isinstance(facts, float) else facts


CASES = {"handoff": handoff, "loss": loss, "kill": kill, "idle": idle}

if __name__ == "__main__":
    sys.exit(main())
