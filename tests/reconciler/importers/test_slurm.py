"""Slurm's files: what each line becomes, and configurations as they are found in public, of which no field is left unknown."""

from __future__ import annotations

from fractions import Fraction
from textwrap import dedent

import pytest

from reconciler.importers.inventory import gpus_of_gres
from reconciler.importers.slurm.hosts import hosts
from reconciler.importers.slurm.tres import tres
from reconciler.model.problem import InvalidDocumentsError
from tests.reconciler.importers.imports import documents, entry, imported, outcomes, quota, unknown

CONF = """\
    ClusterName=physics-hall
    GresTypes=gpu
    AccountingStorageEnforce=associations,limits,qos
    PriorityType=priority/multifactor
    PriorityDecayHalfLife=2-0
    PriorityWeightFairshare=100000
    PriorityWeightAge=1000
    PriorityMaxAge=1-0
    PreemptType=preempt/partition_prio
    PreemptMode=REQUEUE
    PreemptExemptTime=30:00
    NodeName=DEFAULT ThreadsPerCore=2 State=UNKNOWN
    NodeName=g[01-04] CPUs=128 RealMemory=1024000 MemSpecLimit=24000 \\
        Gres=gpu:h100:8(S:0-1),nic:2 Feature=fast,nvlink
    NodeName=c1 Sockets=2 CoresPerSocket=16 RealMemory=256000 State=DRAIN
    PartitionName=DEFAULT MaxTime=24:00:00
    PartitionName=urgent nodes=g[01-04] PriorityTier=3 PreemptMode=OFF AllowAccounts=admin
    PartitionName=batch Nodes=g[01-03] PriorityTier=1 Default=YES GraceTime=600 # QOS=none
    PartitionName=cpu Nodes=c1 DefaultTime=1:00:00
    """
ACCOUNTS = """\
    Cluster|Account|User|ParentName|Partition|Share|GrpTRES|MaxTRES|QOS|Def QOS
    physics-hall|root||||1||||
    physics-hall| root|root|||1||||
    physics-hall| admin||root||1|||normal|
    physics-hall|  admin|boss|||1||||
    physics-hall| astro||root||40|gres/gpu=16,license/x=3||normal|
    physics-hall|  stars||astro||30|||normal|
    physics-hall|   stars|ada|||1|gres/gpu:h100=4|||
    physics-hall|   stars|bob|||1|gres/gpu:h100=4|||
    physics-hall|  Lattice_QCD||astro||10||cpu=64|normal|
    physics-hall|   Lattice_QCD|eve||batch|5||||
    physics-hall|  astro|fay|||5||||
    """
FILES = {"slurm.conf": CONF, "assoc.txt": ACCOUNTS}


def test_accounts_become_a_tree_that_shares_by_weight() -> None:
    queues = documents(imported("slurm", FILES), "Queue")
    assert {name: spec.get("parent") for name, spec in queues.items()} == {
        "physics-hall": None,
        "admin": "physics-hall",
        "astro": "physics-hall",
        "astro-users": "astro",
        "lattice-qcd": "astro",
        "stars": "astro",
    }
    # Slurm guarantees nothing by number: a share is what is left out, by weight.
    assert [queues[name].get("weight", 1) for name in ("stars", "lattice-qcd", "astro-users")] == [6, 2, 1]
    assert queues["stars"]["access"] == {"submitters": ["user:ada", "user:bob"]}


def test_shares_of_users_are_weights_where_they_differ_and_shares_count_at_all() -> None:
    differing = ACCOUNTS.replace("stars|ada|||1|", "stars|ada|||30|").replace("stars|bob|||1|", "stars|bob|||20|")
    found = imported("slurm", {**FILES, "assoc.txt": differing})
    queues = documents(found, "Queue")
    assert queues["stars"]["users"] == {"fairShare": True, "weights": {"ada": 3, "bob": 2}}
    assert entry(found, "share", "association stars/ada").target == "Queue stars users.weights"
    # Every queue below has what the root says; where all users have the same share, they need no weights.
    assert (queues["physics-hall"]["users"], "users" in queues["lattice-qcd"]) == ({"fairShare": True}, False)
    without = imported("slurm", {**FILES, "slurm.conf": CONF.replace("Fairshare=100000", "Fairshare=0")})
    assert [spec for spec in documents(without, "Queue").values() if "users" in spec] == []


def test_limits_of_an_account_are_ceilings_and_those_of_all_its_users_one_for_each() -> None:
    found = imported("slurm", FILES)
    assert quota(found, "astro") == {"h100": {"max": 16}}
    assert quota(found, "stars") == {"h100": {"perUser": 4}}
    assert "license/x" in entry(found, "grptres", "association astro").note


def test_partitions_become_classes_by_tier_with_their_pools_and_times() -> None:
    classes = documents(imported("slurm", FILES), "PriorityClass")
    assert classes["urgent"] == {
        "value": 20,
        "scope": "cluster",
        "defaultTimeLimit": "24h",
        "pools": ["h100-8", "h100-8-2"],
        "preemptible": False,
        "mayBorrow": True,
        "protection": {"minRuntime": "30m"},
        "agingPerHour": 0.333,
    }
    assert (classes["batch"]["value"], classes["batch"]["pools"]) == (10, ["h100-8"])
    assert classes["cpu"]["defaultTimeLimit"] == "1h"


def test_an_account_may_have_the_classes_of_the_partitions_that_take_it() -> None:
    queues = documents(imported("slurm", FILES), "Queue")
    assert queues["stars"]["priorityClasses"] == ["batch", "cpu"]
    assert "priorityClasses" not in queues["admin"]


def test_nodes_become_pools_without_what_the_system_keeps() -> None:
    pools = documents(imported("slurm", FILES), "NodePool")
    assert pools["h100-8"] == {
        "gpuType": "h100",
        "gpusPerNode": 8,
        "cpu": 128,
        "memory": "1000000Mi",
        "labels": ["feature/fast=true", "feature/nvlink=true"],
        "nodes": {"names": ["g01", "g02", "g03"]},
    }
    assert pools["cpu"] == {"cpu": 64, "memory": "250Gi", "cordoned": ["c1"], "nodes": {"names": ["c1"]}}


def test_settings_say_what_is_evicted_and_how_use_is_forgotten() -> None:
    found = imported("slurm", FILES)
    settings = documents(found, "SchedulingPolicy")["default"]
    assert settings == {
        "reclaim": "guaranteed",
        "usageHalfLife": "48h",
        "evictions": {"grace": "10m"},
        "defaultPriorityClass": "batch",
    }
    none = CONF.replace("preempt/partition_prio", "preempt/none").replace("=REQUEUE", "=OFF")
    settings = documents(imported("slurm", {**FILES, "slurm.conf": none}), "SchedulingPolicy")["default"]
    assert settings["evictions"] == {"perRound": 0, "movesPerRound": 0, "grace": "10m"}


def test_no_field_is_left_without_a_word() -> None:
    found = imported("slurm", FILES)
    assert unknown(found) == []
    assert set(outcomes(found)) == {"carried", "changed", "dropped"}


def test_partitions_and_qos_make_one_class_for_each_pair_that_jobs_may_have() -> None:
    qos = """\
        Name|Priority|GraceTime|Preempt|PreemptExemptTime|PreemptMode|Flags|UsageFactor|GrpTRES|MaxTRESPU|MaxWall
        normal|0|00:00:00|||cluster||1.000000|||
        high|100|00:05:00|normal|01:00:00|cancel|DenyOnLimit|1.000000||gres/gpu=8|2-00:00:00
        """
    conf = CONF.replace("partition_prio", "qos").replace("PriorityTier=3", "PriorityTier=3 AllowQos=high")
    found = imported("slurm", {"slurm.conf": conf, "qos.txt": qos})
    classes = documents(found, "PriorityClass")
    assert {name: spec["value"] for name, spec in classes.items()} == {
        "urgent-high": 30,
        "batch-normal": 10,
        "batch-high": 20,
        "cpu-normal": 10,
        "cpu-high": 20,
    }
    assert (classes["batch-normal"].get("preemptible", True), classes["batch-high"]["preemptible"]) == (True, False)
    assert classes["batch-high"]["protection"] == {"minRuntime": "1h"}
    assert entry(found, "preempt", "QOS high").outcome == "carried"
    assert entry(found, "preemptmode", "QOS high").outcome == "changed"
    # Without accounts a partition is a queue, as scripts name it.
    assert documents(found, "Queue")["batch"] == {
        "parent": "physics-hall",
        "priorityClasses": ["batch-normal", "batch-high"],
    }
    assert unknown(found) == []


def test_a_table_without_parents_is_refused_with_the_command_that_prints_them() -> None:
    table = "Cluster|Account|User|Partition|Share\nc|root|||1\n"
    with pytest.raises(InvalidDocumentsError) as refused:
        imported("slurm", {"slurm.conf": CONF, "assoc.txt": table})
    (problem,) = refused.value.problems
    assert (problem.code, "format=cluster,account,user,parentname" in problem.fix) == ("no-parents", True)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("NodeName=n[1-", "slurm.conf:20:1: error[host-list]"),
        ("Priority", "'Priority' is no pair KEY=VALUE"),
        (
            "PartitionName=p Nodes=c1 MaxTime=soon",
            "slurm.conf:20:1: error[quantity]: PartitionName p: 'soon' is no time",
        ),
        ("NodeName=u1 Gres=gpu:4 CPUs=2 RealMemory=8", "node u1 has 4 GPUs of no type"),
    ],
)
def test_a_line_that_cant_be_read_is_an_error_with_its_place(line: str, said: str) -> None:
    with pytest.raises(InvalidDocumentsError) as refused:
        imported("slurm", {"slurm.conf": dedent(CONF) + line + "\n"})
    assert said in str(refused.value)


def test_switches_are_racks_and_blocks_and_names_that_nothing_describes_are_asked_for() -> None:
    topology = """\
        SwitchName=leaf1 Nodes=g[01-02]
        SwitchName=leaf2 Nodes=g03,x7
        SwitchName=spine Switches=leaf[1-2]
        SwitchName=core Switches=spine
        """
    found = imported("slurm", {"slurm.conf": CONF, "topology.conf": topology})
    assert documents(found, "Topology")["h100-8"]["domains"] == [
        {"level": "block", "name": "spine"},
        {"level": "rack", "name": "leaf1", "parent": "spine", "nodes": ["g01", "g02"]},
        {"level": "rack", "name": "leaf2", "parent": "spine", "nodes": ["g03"]},
    ]
    assert [
        each.value for each in found.report.entries if each.outcome == "asked" and each.file == "topology.conf"
    ] == ["(x7)"]


def test_topology_yaml_comes_before_topology_conf() -> None:
    blocks = """\
        - topology: fabric
          cluster_default: true
          block:
            block_sizes: [2, 4]
            blocks:
              - {block: b1, nodes: "g[01-02]"}
              - {block: b2, nodes: g03}
        - topology: spare
          flat: true
        """
    found = imported(
        "slurm", {"slurm.conf": CONF, "topology.yaml": blocks, "topology.conf": "SwitchName=s1 Nodes=g01\n"}
    )
    domains = documents(found, "Topology")["h100-8"]["domains"]
    assert domains[0] == {"level": "island", "name": "b1", "nodes": ["g01", "g02"]}
    assert unknown(found) == []


def test_reservations_keep_nodes_for_an_account_or_for_users() -> None:
    text = """\
        ReservationName=school StartTime=2026-12-01T08:00:00 EndTime=2026-12-02T08:00:00 Duration=1-00:00:00
           Nodes=g[01-02] NodeCnt=2 CoreCnt=128 Features=(null) PartitionName=batch Flags=SPEC_NODES
           TRES=cpu=256
           Users=(null) Groups=(null) Accounts=stars Licenses=(null) State=INACTIVE BurstBuffer=(null)
        ReservationName=repair StartTime=2026-12-01T08:00:00 EndTime=2026-12-02T08:00:00 Nodes=g04 Users=root Flags=MAINT
        """
    joined = text.replace("\n           ", " ")
    found = imported("slurm", {**FILES, "reservations.txt": joined})
    assert documents(found, "Reservation") == {
        "school": {
            "from": "2026-12-01T08:00:00Z",
            "until": "2026-12-02T08:00:00Z",
            "queue": "stars",
            "nodes": ["g01", "g02"],
        }
    }
    assert entry(found, "starttime", "school").outcome == "asked"
    assert unknown(found) == []


@pytest.mark.parametrize(
    ("flag", "start", "rule"),
    [
        ("DAILY", "2026-12-01", "FREQ=DAILY"),
        ("WEEKLY", "2026-12-01", "FREQ=WEEKLY"),
        ("WEEKDAY", "2026-12-07", "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR"),
        ("WEEKEND", "2026-12-05", "FREQ=WEEKLY;BYDAY=SA,SU"),
    ],
)
def test_one_that_comes_again_repeats_for_ever(flag: str, start: str, rule: str) -> None:
    """On weekdays it begins with the first of them, though Slurm may name a Saturday."""
    written = "2026-12-05" if flag == "WEEKDAY" else start
    text = (
        f"ReservationName=night StartTime={written}T20:00:00 EndTime={written}T22:30:00 Nodes=g01 Accounts=stars "
        f"Flags=SPEC_NODES,{flag}\n"
    )
    found = imported("slurm", {**FILES, "reservations.txt": text})
    assert documents(found, "Reservation") == {
        "night": {
            "from": f"{start}T20:00:00Z",
            "repeat": {"rule": rule, "duration": "150m", "timeZone": "UTC"},
            "queue": "stars",
            "nodes": ["g01"],
        }
    }
    assert entry(found, "flags", "night").outcome == "changed"


def test_one_that_would_begin_before_it_is_over_comes_once() -> None:
    text = "ReservationName=long StartTime=2026-12-01T20:00:00 EndTime=2026-12-03T20:00:00 Nodes=g01 Users=ada Flags=DAILY\n"
    found = imported("slurm", {**FILES, "reservations.txt": text})
    assert documents(found, "Reservation")["long"]["until"] == "2026-12-03T20:00:00Z"
    assert entry(found, "flags", "long").outcome == "dropped"


# As found in public; facts restated.

SERVICE = """\
    ClusterName=super
    ControlMachine=login
    SlurmUser=slurm
    SlurmctldPort=6817
    SlurmdPort=6818
    AuthType=auth/munge
    StateSaveLocation=/var/spool/slurm/ctld
    SlurmdSpoolDir=/var/spool/slurm/d
    SwitchType=switch/none
    SlurmctldPidFile=/var/run/slurmctld.pid
    SlurmdPidFile=/var/run/slurmd.pid
    ProctrackType=proctrack/cgroup
    PluginDir=/usr/lib/slurm/
    ReturnToService=1
    PropagateResourceLimitsExcept=MEMLOCK,NOFILE
    PrologFlags=Alloc,Serial
    BatchStartTimeout=120
    Prolog=/etc/slurm/prolog.sh
    Prolog=/etc/slurm/more.sh
    PrologSlurmctld=/etc/slurm/ufm.sh
    MailProg=/usr/bin/mailx
    RebootProgram="/bin/systemctl reboot"
    ResumeTimeout=1200
    HealthCheckProgram=/usr/sbin/nhc
    HealthCheckNodeState=IDLE
    HealthCheckInterval=3600
    TaskPlugin=affinity,cgroup
    TaskPluginParam=Sched,None
    SlurmctldTimeout=300
    SlurmdTimeout=300
    MessageTimeout=60
    InactiveLimit=0
    MinJobAge=300
    KillWait=60
    KillOnBadExit=1
    WaitTime=600
    UnkillableStepTimeout=240
    SchedulerType=sched/backfill
    SchedulerParameters=kill_invalid_depend,bf_max_job_test=500
    PriorityType=priority/multifactor
    PriorityFavorSmall=YES
    PriorityWeightFairshare=100000
    PriorityWeightPartition=10000
    PriorityWeightJobSize=1000
    SelectType=select/linear
    SelectTypeParameters=CR_Memory
    PreemptType=preempt/partition_prio
    PreemptMode=CANCEL
    PreemptExemptTime=30:00
    CompleteWait=360
    SlurmSchedLogFile=/var/log/slurm/sched.log
    SlurmctldDebug=info
    SlurmctldLogFile=/var/log/slurm/slurmctld.log
    JobCompType=jobcomp/none
    JobAcctGatherType=jobacct_gather/cgroup
    AccountingStorageEnforce=associations,limits,qos
    AccountingStorageTRES=gres/gpu
    AccountingStorageType=accounting_storage/slurmdbd
    AccountingStorageHost=login
    AccountingStorageUser=slurm
    AccountingStoragePass=/var/run/munge/munge.socket.2
    MpiDefault=pmix
    """
NODES = "".join(
    f"    NodeName=dgx-n{number:03} CPUs=96 Sockets=2 CoresPerSocket=24 ThreadsPerCore=2 Procs=48 RealMemory=1469490\n"
    for number in range(1, 99)
)
PARTITIONS = """\
    PartitionName=batch OverSubscribe=EXCLUSIVE Default=YES PriorityTier=2 MaxTime=8:00:00 \\
        PreemptMode=OFF DenyAccounts=none,ci nodes=dgx-n[001-092]
    PartitionName=interactive OverSubscribe=EXCLUSIVE PriorityTier=2 MaxTime=2:00:00 PreemptMode=OFF nodes=dgx-n[093-094]
    PartitionName=hp OverSubscribe=EXCLUSIVE PriorityTier=3 MaxTime=2:00:00 PreemptMode=OFF AllowAccounts=admin \\
        nodes=dgx-n[001-092]
    PartitionName=backfill OverSubscribe=EXCLUSIVE PriorityTier=1 MaxTime=24:00:00 GraceTime=600 nodes=dgx-n[001-092]
    PartitionName=ci OverSubscribe=EXCLUSIVE PriorityTier=2 MaxTime=8:00:00 PreemptMode=OFF AllowAccounts=ci \\
        nodes=dgx-n[001-092,095-098]
    """


def test_98_nodes_whose_files_name_no_gpus_need_the_nodes() -> None:
    with pytest.raises(InvalidDocumentsError) as refused:
        imported("slurm", {"slurm.conf": SERVICE + NODES + PARTITIONS})
    (problem,) = refused.value.problems
    assert (problem.code, problem.line) == ("no-gpus", 57)
    assert "scontrol show nodes --json" in problem.fix


def test_98_nodes_with_what_scontrol_prints() -> None:
    nodes = {
        "nodes": [
            {
                "name": f"dgx-n{number:03}",
                "gres": "gpu:v100:16(S:0-1)",
                "cpus": 96,
                "real_memory": 1469490,
                "state": ["IDLE", "DRAIN"] if number == 98 else ["IDLE"],
                "specialized_cores": {"set": False, "infinite": False, "number": 0},
            }
            for number in range(1, 99)
        ]
    }
    found = imported("slurm", {"slurm.conf": SERVICE + NODES + PARTITIONS}, nodes)
    assert unknown(found) == []
    pools = documents(found, "NodePool")
    assert sorted(len(pool["nodes"]["names"]) for pool in pools.values()) == [2, 4, 92]
    assert sum(len(pool["nodes"]["names"]) * pool["gpusPerNode"] for pool in pools.values()) == 1568
    classes = documents(found, "PriorityClass")
    assert [classes[name]["value"] for name in ("backfill", "batch", "hp")] == [10, 20, 30]
    assert classes["backfill"].get("preemptible", True)
    assert entry(found, "preemptmode", "setting").outcome == "changed"


def test_four_nodes_with_comments_behind_lines_and_factors() -> None:
    text = """\
        ClusterName=lab
        SlurmctldHost=lab001 # 主
        PriorityFavorSmall=NO
        EnforcePartLimits=ANY
        AccountingStorageEnforce=limits
        JobFileAppend=1
        JobRequeue=1
        AccountingStoreFlags=job_comment
        JobAcctGatherFrequency=30
        JobCompHost=lab001
        JobCompLoc=slurm_acct_db
        JobCompPass=secret
        JobCompUser=slurm
        Waittime=0
        PreemptType=preempt/partition_prio
        NodeName=dl00[1-4] NodeAddr=10.0.0.[11-14] RealMemory=1031000 CPUs=128 Gres=gpu:H800:8 State=UNKNOWN Feature="80G"
        PartitionName=high Nodes=dl00[1-4] DefMemPerGPU=80000 DefMemPerCPU=7812 MaxTime=INFINITE State=UP \\
            PriorityJobFactor=4 PriorityTier=3 PreemptMode=OFF
        PartitionName=mid Nodes=dl00[1-4] MaxTime=INFINITE State=UP PriorityJobFactor=2 PriorityTier=2 PreemptMode=OFF #QOS=mid
        PartitionName=test Nodes=dl004 Default=YES MaxTime=00:45:00 PriorityTier=2 PreemptMode=OFF
        """
    found = imported("slurm", {"slurm.conf": text}, H800="H800-80GB")
    assert unknown(found) == []
    # All partitions say OFF: nothing is ever evicted there.
    assert documents(found, "SchedulingPolicy")["default"]["evictions"] == {"perRound": 0, "movesPerRound": 0}
    assert {name: spec["value"] for name, spec in documents(found, "PriorityClass").items()} == {
        "high": 30,
        "mid": 20,
        "test": 10,
    }
    assert {pool["gpuType"] for pool in documents(found, "NodePool").values()} == {"H800-80GB"}


def test_gpus_without_types_in_two_files_with_quoted_values() -> None:
    conf = """\
        AuthInfo=cred_expire=300
        PreemptType=preempt/qos
        PreemptMode=REQUEUE
        PreemptExemptTime=-1
        FederationParameters=fed_display
        CpuFreqDef=Performance
        LaunchParameters=enable_nss_slurm
        DebugFlags=Script,Gang
        TCPTimeout=5
        GresTypes=gpu
        Include more.conf
        NodeName=cn[1-12] Sockets=8 CoresPerSocket=2 ThreadsPerCore=2 RealMemory=112000 Gres=gpu:2
        PartitionName=main Nodes=cn[1-10] Default=YES MaxTime=INFINITE OverSubscribe=NO \\
            TRESBillingWeights="CPU=2.6,Mem=0.25G,GRES/gpu=24.0"
        PartitionName=private Nodes=cn[11-12] Default=NO MaxTime=INFINITE Hidden=YES AllowQos=admin
        """
    gres = "NodeName=cn[1-12] File=/dev/nvidia[0-1] AutoDetect=nvml Name=gpu\n"
    found = imported("slurm", {"slurm.conf": conf, "gres.conf": gres}, only="T4-16GB")
    assert unknown(found) == []
    assert {pool["gpusPerNode"] for pool in documents(found, "NodePool").values()} == {2}
    assert entry(found, "include").outcome == "asked"
    assert [each.line for each in found.report.entries if each.field == "tresbillingweights"] == [14]


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("n[001-003,019],m7", ["n001", "n002", "n003", "n019", "m7"]),
        ("r[1-2]n[08-10]", ["r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"]),
        ("a,b", ["a", "b"]),
        ("", []),
    ],
)
def test_host_lists(written: str, names: list[str]) -> None:
    assert hosts(written) == names


@pytest.mark.parametrize("written", ["n[1-", "n[a-b]", "n[1-999999999]"])
def test_what_is_no_host_list_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"bracket|range|more than"):
        hosts(written)


def test_trackable_resources() -> None:
    found = tres("gres/gpu:h100=32,gres/gpu=64,cpu=512,mem=1.50T,node=-1,billing=7")
    assert found.gpus == {"h100": 32, "": 64}
    assert found.host == {"cpu": 512, "memory": Fraction(3, 2) * 2**40}
    assert found.others == ["billing"]


@pytest.mark.parametrize(
    ("written", "gpus"),
    [
        ("gpu:h100:8(S:0-1),nic:2", ("h100", 8)),
        ("nic:1,gpu:4", ("", 4)),
        ("gpu:a100:4(S:0,2),gpu:a100:4(S:1,3)", ("a100", 8)),
        ("gpu", ("", 1)),
        ("", ("", 0)),
        ("(null)", ("", 0)),
    ],
)
def test_generic_resources(written: str, gpus: tuple[str, int]) -> None:
    assert gpus_of_gres(written) == gpus


def test_one_type_for_all_gpus_is_that_of_the_only_type_that_files_name() -> None:
    found = imported("slurm", FILES, only="H100-SXM5-80GB")
    pools = documents(found, "NodePool").values()
    assert {pool["gpuType"] for pool in pools if pool.get("gpusPerNode")} == {"H100-SXM5-80GB"}
    assert found.keys.type_of("h100") == "H100-SXM5-80GB"
    assert "H100-SXM5-80GB" in quota(found, "stars")


def test_one_type_for_gpus_of_several_is_asked_for() -> None:
    several = CONF + "    NodeName=a1 CPUs=64 RealMemory=256000 Gres=gpu:a100:8\n"
    with pytest.raises(InvalidDocumentsError) as refused:
        imported("slurm", {**FILES, "slurm.conf": several}, only="H100-SXM5-80GB")
    (problem,) = refused.value.problems
    assert problem.message == "nodes have GPUs of the types a100, h100, and --gpu-type H100-SXM5-80GB names one for all"
    assert "--gpu-type a100=TYPE --gpu-type h100=TYPE" in problem.fix
    named = imported("slurm", {**FILES, "slurm.conf": several}, only="H100-SXM5-80GB", a100="A100")
    assert {pool.get("gpuType") for pool in documents(named, "NodePool").values()} >= {"A100", "H100-SXM5-80GB"}


def test_without_slurm_conf_what_may_be_evicted_is_asked() -> None:
    found = imported("slurm", {"assoc.txt": "Cluster|Account|User|ParentName|Share\nc|root|||1\nc|a||root|2\n"})
    assert entry(found, "preempttype").outcome == "asked"
    assert documents(found, "SchedulingPolicy")["default"]["evictions"] == {"perRound": 0, "movesPerRound": 0}


def test_a_rack_that_lies_in_two_pools_is_told() -> None:
    found = imported("slurm", {"slurm.conf": CONF, "topology.conf": "SwitchName=leaf Nodes=g[01-04]\n"})
    (told,) = (each for each in found.report.entries if each.value == "(leaf)")
    assert (told.outcome, "several pools" in told.note) == ("changed", True)


def test_an_account_that_a_partition_denies_has_its_class_in_no_queue() -> None:
    denied = CONF.replace("PriorityTier=1 Default=YES", "PriorityTier=1 Default=YES DenyAccounts=stars,other")
    queues = documents(imported("slurm", {**FILES, "slurm.conf": denied}), "Queue")
    assert queues["stars"]["priorityClasses"] == ["cpu"]
    assert queues["lattice-qcd"]["priorityClasses"] == ["batch", "cpu"]


def test_rights_to_a_qos_that_only_users_have_are_those_of_their_queue() -> None:
    accounts = """\
        Cluster|Account|User|ParentName|Partition|Share|QOS|
        c|root||||1||
        c|co_stat||root||1||
        c|co_stat|pat|||1|urgent,normal|
        c|co_stat|pat||cpu|1|low|
        """
    qos = "Name|Priority\nnormal|0\nlow|0\nurgent|9\nother|5\n"
    conf = "PreemptType=preempt/none\nNodeName=n1 CPUs=2 RealMemory=1000\nPartitionName=cpu Nodes=n1\n"
    found = imported("slurm", {"slurm.conf": conf, "assoc.txt": accounts, "qos.txt": qos})
    assert unknown(found) == []
    assert documents(found, "Queue")["co-stat"]["priorityClasses"] == ["normal", "low", "urgent"]
    assert documents(found, "Queue")["co-stat"]["access"] == {"submitters": ["user:pat"]}
