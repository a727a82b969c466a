"""What becomes of the settings of slurm.conf, of nodes and of partitions that need no arithmetic (slurm.conf(5), 26.11)."""

from __future__ import annotations

from typing import Final

from reconciler.importers.account import ImportAccount, Rules
from reconciler.importers.source import SourceRecord

_GROUPS: Final[dict[str, str]] = {
    "how Slurm's own processes run, and where they keep their files: no policy": """
        accountingstoragebackuphost accountingstorageexternalhost accountingstoragehost accountingstorageloc
        accountingstorageparameters accountingstoragepass accountingstorageport accountingstoragetype
        accountingstorageuser accountingstoreflags accountingstorejobcomment acctgatherenergytype
        acctgatherfilesystemtype acctgatherinfinibandtype acctgatherinterconnecttype acctgathernodefreq
        acctgatherprofiletype allowspecresourcesusage authaltparameters authalttypes authaltypes authinfo
        authtype backupaddr backupcontroller batchstarttimeout bcastexclude bcastparameters burstbuffertype
        certgenparameters certgentype certmgrparameters certmgrtype checkpointtype clifilterparameters
        clifilterplugins communicationparameters completewait controladdr controlmachine corespecplugin
        cpufreqdef cpufreqgovernors credtype cryptotype dataparserparameters datapasrserparameters debugflags
        dependencyparameters disablerootjobs eiotimeout enablewarnings epilog epilogmsgtime epilogslurmctld
        epilogtimeout fairsharedampeningfactor fastschedule federationparameters firstjobid getenvtimeout
        gpufreqdef grouptimes groupupdateforce groupupdatetime hashplugin healthcheckinterval
        healthchecknodestate healthcheckprogram httpparsertype inactivelimit interactivestepoptions
        jobacctgatherfrequency jobacctgatherparams jobacctgathertype jobcheckpointdir jobcompcommand jobcomphost
        jobcomploc jobcompparams jobcomppass jobcomppassscript jobcompport jobcomptype jobcompuser
        jobcontainertype jobcredentialprivatekey jobcredentialpubliccertificate jobfileappend jobrequeue
        jobsubmitplugins keepalivetime killonbadexit killwait launchparameters launchtype logtimeformat
        maildomain mailprog maxdbdmsgs maxjobid maxmemperjob maxstepcount mcsparameters mcsplugin messagetimeout
        metricstype minjobage mpidefault mpiparams namespacetype nodefeaturesplugins overtimelimit plugindir
        plugstackconfig powerparameters powerplugin preferreduser privatedata proctracktype prolog
        prologepilogtimeout prologflags prologslurmctld prologtimeout propagateprioprocess
        propagateresourcelimits propagateresourcelimitsexcept rebootprogram reconfigflags requeueexit
        requeueexithold resumefailprogram resumeprogram resumerate resumestates resumetimeout resvepilog
        resvoverrun resvprolog returntoservice routeplugin sallocdefaultcommand salloctimeout sbcastparameters
        schedulerport schedulerrootfilter scronparameters slurmctldaddr slurmctlddebug slurmctldhost
        slurmctldlogfile slurmctldparameters slurmctldpidfile slurmctldplugstack slurmctldport
        slurmctldprimaryoffprog slurmctldprimaryonprog slurmctldsyslogdebug slurmctldtimeout slurmddebug
        slurmdlogfile slurmdparameters slurmdpidfile slurmdport slurmdspooldir slurmdsyslogdebug slurmdtimeout
        slurmduser slurmschedlogfile slurmschedloglevel slurmuser srunepilog srunportrange srunprolog
        statesavelocation suspendexcnodes suspendexcparts suspendexcstates suspendprogram suspendrate
        suspendtime suspendtimeout switchparameters switchtype taskepilog taskplugin taskpluginparam
        taskpluginparams taskprolog tcptimeout tlsparameters tlstype tmpfs trackwckey treewidth
        unkillablestepprogram unkillablestepprogramtimeout unkillablesteptimeout urlparsertype usepam
        useprofilequit vsizefactor waittime x11parameters
    """,
    "there is no limit on how many jobs may be there, wait or run": """
        maxarraysize maxbatchrequeue maxjobcount maxnodecount maxsubmitjobs maxtaskspernode
    """,
    "rounds place all waiting jobs at once, with reservations for the first; `solver` of the SchedulingPolicy has their limits": """
        schedulerparameters schedulertimeslice schedulertype
    """,
    "memory, CPU and GPUs are counted, each by itself; a job asks for the CPU and memory that it needs": """
        defcpupergpu defmempercpu defmempergpu defmempernode jobdefaults maxmempercpu maxmempernode selecttype
        selecttypeparameters
    """,
    "job size and other factors are no part of the order": """
        prioritycalcperiod priorityfavorsmall priorityflags priorityparameters prioritysitefactorparameters
        prioritysitefactorplugin priorityusageresetperiod priorityweightassoc priorityweightjobsize
        priorityweighttres
    """,
    "licences are no resource of nodes: nothing counts them": "licenses",
    "which jobs may use a partition's nodes is for queues and classes to say": "enforcepartlimits disablerootjobs",
}
"""Names of settings by why they are dropped."""
_REASONS: Final = {name: why for why, names in _GROUPS.items() for name in names.split()}

NODE: Final[Rules] = (
    (("state",), "carried", "NodePool cordoned", "DOWN, DRAIN and FAIL are cordoned"),
    (("weight",), "dropped", "", "which nodes are taken first is decided by fit and closeness"),
    (("topology",), "dropped", "", "give topology.yaml, which says the same for all nodes"),
    (("*",), "dropped", "", "how Slurm reaches the node, and what it runs there: no policy"),
)  # fmt: skip

PARTITION: Final[Rules] = (
    (("state",), "asked", "", "UP is what holds here; for DOWN, DRAIN or INACTIVE write stopPolicy: Hold at its queue"),
    (("oversubscribe",), "changed", "gpusPerNode of jobs",
     "a node is shared by all jobs that fit on it: exclusive ones ask for all its GPUs"),
    (("shared",), "changed", "gpusPerNode of jobs",
     "a node is shared by all jobs that fit on it: exclusive ones ask for all its GPUs"),
    (("allowallocnodes",), "dropped", "", "jobs come through the API, from anywhere"),
    (("alternate",), "dropped", "", "a job whose queue is stopped waits"),
    (("exclusiveuser",), "dropped", "", "jobs of several users may share a node"),
    (("exclusivetopo",), "dropped", "", "jobs may share a domain of the topology"),
    (("hidden",), "dropped", "", "a user that may see queues sees all of them"),
    (("disablerootjobs",), "dropped", "", "every user has an identity of their own"),
    (("rootonly",), "dropped", "", "`access` of a queue says which users may submit to it"),
    (("reqresv",), "dropped", "", "jobs may run there without a reservation"),
    (("lln",), "dropped", "", "`placement: spread` of a PriorityClass does much the same"),
    (("powerdownonidle",), "dropped", "", "nodes are not switched off"),
    (("maxnodes",), "dropped", "", "there is no limit on the size of a job but max and perUser"),
    (("minnodes",), "dropped", "", "there is no limit on the size of a job but max and perUser"),
    (("maxcpuspernode",), "dropped", "", "there is no limit on the CPU of a partition on one node"),
    (("maxcpuspersocket",), "dropped", "", "there is no limit on the CPU of a partition on one node"),
    (("maxmempercpu",), "dropped", "", "a job asks for the memory that it needs"),
    (("maxmempernode",), "dropped", "", "a job asks for the memory that it needs"),
    (("defmempercpu",), "dropped", "", "a job asks for the CPU and memory that it needs"),
    (("defmempergpu",), "dropped", "", "a job asks for the CPU and memory that it needs"),
    (("defmempernode",), "dropped", "", "a job asks for the CPU and memory that it needs"),
    (("defcpupergpu",), "dropped", "", "a job asks for the CPU and memory that it needs"),
    (("jobdefaults",), "dropped", "", "a job asks for the CPU and memory that it needs"),
    (("tresbillingweights",), "dropped", "", "GPUs are charged by type: a RateCard says what an hour costs"),
    (("overtimelimit",), "dropped", "", "a time limit ends a job when it is over"),
    (("resumetimeout",), "dropped", "", "nodes are not switched off"),
    (("suspendtime",), "dropped", "", "nodes are not switched off"),
    (("suspendtimeout",), "dropped", "", "nodes are not switched off"),
    (("cpubind",), "dropped", "", "tasks get the CPUs that the node's runtime gives them"),
    (("topology",), "dropped", "", "a pool has one topology"),
)  # fmt: skip

_LIMIT: Final = "there is no limit on how many jobs may be there, wait or run"
_TIME: Final = "there is no longest time limit: classes have a default"
_MINUTES: Final = "it is not written: a Budget of GPU-hours holds new jobs back, and ends none that runs"
ASSOCIATION_RULES: Final[Rules] = (
    (("cluster",), "carried", "Queue of the cluster", ""),
    (("user",), "carried", "access.submitters", ""),
    (("partition",), "dropped", "", "users may use an account's queue with every class that it takes"),
    (("defqos",), "dropped", "", "a job that names no class has the SchedulingPolicy's defaultPriorityClass"),
    (("priority",), "dropped", "", "an account's own priority is no part of the order"),
    (("maxtres",), "dropped", "", "there is no limit on the size of one job"),
    (("maxtrespernode",), "dropped", "", "there is no limit on the size of one job"),
    (("grptresmins",), "dropped", "", _MINUTES),
    (("grptresrunmins",), "dropped", "", _MINUTES),
    (("maxtresmins",), "dropped", "", _MINUTES),
    (("grpwall",), "dropped", "", _MINUTES),
    (("maxwall",), "dropped", "", _TIME),
    *(((name,), "dropped", "", _LIMIT) for name in
      ("grpjobs", "grpsubmit", "maxjobs", "maxsubmit", "grpjobsaccrue", "maxjobsaccrue")),
)  # fmt: skip

QOS_RULES: Final[Rules] = (
    (("description",), "carried", "", "for people: it is not written"),
    (("flags",), "dropped", "", "flags of a QOS change limits that have no equal"),
    (("usagethres",), "dropped", "", "past use orders queues, and keeps no job from starting"),
    (("usagefactor",), "dropped", "", "an hour counts as an hour, whichever the class"),
    (("limitfactor",), "dropped", "", "an hour counts as an hour, whichever the class"),
    (("grptres",), "dropped", "",
     "a class has no limit over all queues: write max at queues, or a queue that takes this class alone"),
    (("maxtres",), "dropped", "", "there is no limit on the size of one job"),
    (("maxtrespernode",), "dropped", "", "there is no limit on the size of one job"),
    (("mintres",), "dropped", "", "there is no least size of a job"),
    (("mintresperjob",), "dropped", "", "there is no least size of a job"),
    (("maxtrespa",), "dropped", "", "a class has no limit for an account: write max at its queue"),
    (("maxtresperaccount",), "dropped", "", "a class has no limit for an account: write max at its queue"),
    (("maxwall",), "dropped", "", _TIME),
    *(((name,), "dropped", "", _MINUTES) for name in
      ("grptresmins", "grptresrunmins", "grpwall", "maxtresmins", "maxtresrunminspa", "maxtresrunminspu")),
    *(((name,), "dropped", "", _LIMIT) for name in
      ("grpjobs", "grpsubmit", "grpjobsaccrue", "maxjobspu", "maxjobsperuser", "maxsubmitpu", "maxsubmitjobsperuser", "maxjobspa",
       "maxsubmitpa", "maxjobsaccruepa", "maxjobsaccruepu", "minpriothresh", "minpriothreshold")),
)  # fmt: skip


def drop_setting(account: ImportAccount, record: SourceRecord) -> None:
    """Note a setting that is no policy, if it is known."""
    if record.name.lower() in _REASONS:
        account.dropped(record, (record.name.lower(),), _REASONS[record.name.lower()])
