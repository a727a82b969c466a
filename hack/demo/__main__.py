"""One commit followed from Git to running processes, told with the commands as a user types them: `python -m hack.demo`."""

from __future__ import annotations

import sys
import time
from functools import partial

import click

from hack.demo.stage import DemoFailedError, Stage

QUEUE_FILE = "policies/queues/product-ranking.yaml"
BRANCH = "more-for-ranking"
SUBMITTED = ("ranking-pretrain", "ranking-finetune", "ranking-sweep", "language-eval", "vision-train")


def main() -> None:
    """Play the story; exits with 1 where it does not go as told."""
    began = time.monotonic()
    try:
        with Stage() as stage:
            for act in (_repository, _jobs, _running_gang, _waiting_job, _change, _merge, _revert, _curtain):
                act(stage)
    except (DemoFailedError, OSError) as failure:
        click.echo(f"demo failed: {failure}", err=True)
        sys.exit(1)
    click.echo(f"Done in {time.monotonic() - began:.0f} seconds. Nothing is left running, and the folder is gone.")


def _say(text: str) -> None:
    click.secho(f"# {text}", fg="cyan")


def _repository(stage: Stage) -> None:
    stage.set_up()
    _say("The whole policy of a cluster is a Git repository: queues and quotas, priority classes, the inventory.")
    stage.run("git", "init", "--quiet", "--initial-branch=main", "policy")
    stage.run("git", "-C", "policy", "add", ".")
    stage.run("git", "-C", "policy", "commit", "--quiet", "-m", "The cluster and its queues")
    stage.run("quorate", "validate", "policy", expect="valid")
    _say("The control plane follows it. GPUs are declared, the processes of jobs are real.")
    stage.start_server(
        "run", "--policies-repo", "policy", "--state", "state", "--listen", "127.0.0.1:0", "--poll", "1s"
    )
    stage.commit_in_force()
    stage.run("quorate", "status", expect="Applied")


def _jobs(stage: Stage) -> None:
    _say("Five jobs in three queues. The first is a gang of 8 tasks with 8 GPUs each.")
    # In one round with it, the second would come first: it lies inside its queue's guarantee as a whole.
    first, *others = SUBMITTED
    stage.run("quorate", "submit", "-f", f"jobs/{first}.yaml", expect=f"submitted {first}")
    stage.run("quorate", "wait", first, "--for", "running", "--timeout", "1m")
    for name in others:
        stage.run("quorate", "submit", "-f", f"jobs/{name}.yaml", expect=f"submitted {name}")
    stage.run("quorate", "wait", "vision-train", "--for", "running", "--timeout", "1m")
    stage.run("quorate", "wait", "language-eval", "--propagate", "--timeout", "1m", expect="succeeded")
    stage.run("quorate", "get", expect="ranking-finetune  product-ranking")


def _running_gang(stage: Stage) -> None:
    _say("The gang runs whole, in one block. Each task is a process that knows its rank, its peers and its GPUs.")
    stage.run("quorate", "describe", "ranking-pretrain", expect="worker/7")
    _all_logs_can_be_read(stage)
    stage.run("quorate", "logs", "ranking-pretrain", "--index", "3", expect="RANK=3\nWORLD_SIZE=8")


def _waiting_job(stage: Stage) -> None:
    _say("Nobody waits without a reason. This one names the line in Git that stands in the job's way.")
    stage.run("quorate", "why", "ranking-finetune", expect=f"holds 64 of max 64 H100-SXM5-80GB ({QUEUE_FILE}:")


def _change(stage: Stage) -> None:
    _say("Somebody proposes another quota on a branch. The plan shows what that would do, before it is merged.")
    stage.run("git", "-C", "policy", "switch", "--quiet", "--create", BRANCH)
    queue = stage.policy / QUEUE_FILE
    queue.write_text(queue.read_text().replace("max: 64", "max: 96"))
    stage.run(
        "git", "-C", "policy", "diff", "--unified=0", expect="+    - {gpuType: H100-SXM5-80GB, guaranteed: 32, max: 96}"
    )
    stage.run("git", "-C", "policy", "commit", "--quiet", "--all", "-m", "Let ranking borrow up to 96 H100")
    stage.run(
        "quorate", "plan", "--repo", "policy", "--base", "main", "--head", BRANCH,
        expect="ranking-finetune",
    )  # fmt: skip


def _merge(stage: Stage) -> None:
    _say("It is merged. The loop picks the commit up and starts the job; nobody restarts anything.")
    stage.run("git", "-C", "policy", "switch", "--quiet", "main")
    stage.run("git", "-C", "policy", "merge", "--quiet", BRANCH)
    stage.run("quorate", "wait", "ranking-finetune", "--for", "running", "--timeout", "1m")
    stage.run("quorate", "status", expect=stage.commit_in_force()[:12])
    stage.run("quorate", "get", expect="ranking-finetune")


def _revert(stage: Stage) -> None:
    _say("git revert takes it back. What runs goes on; what comes next meets the old limit again.")
    stage.run("git", "-C", "policy", "revert", "--no-edit", "HEAD")
    stage.run("quorate", "status", expect=stage.commit_in_force()[:12])
    with stage.client() as client:
        stage.until("a round was decided under it", lambda: "of max 64" in client.why("ranking-sweep").words[0])
    stage.run("quorate", "why", "ranking-sweep", expect="holds 96 of max 64")
    stage.run("quorate", "queues", expect="product-ranking")


def _curtain(stage: Stage) -> None:
    _say("Every round that decided something is on record, and solving it again gives the same plan.")
    stage.run("quorate", "rounds")
    stage.run("quorate", "replay", "1", expect="identical")
    _say("The end: cancel what runs, and stop the control plane.")
    names = ("ranking-pretrain", "ranking-finetune", "ranking-sweep", "vision-train")
    stage.run("quorate", "cancel", *names)
    with stage.client() as client:
        stage.until("every job has ended", lambda: all(client.job(name).outcome for name in names))
    stage.stop_server()
    stage.until("no process is left", lambda: not stage.left_running())


def _all_logs_can_be_read(stage: Stage) -> None:
    """Not only that of the task that is shown."""
    with stage.client() as client:
        for job in client.jobs().items:
            for task in job.tasks:
                stage.until(
                    f"task {task.group}/{task.index} of {job.name} has written something",
                    partial(client.log, job.name, task.group, task.index),
                )


if __name__ == "__main__":
    main()
