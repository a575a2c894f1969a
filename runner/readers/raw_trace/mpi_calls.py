"""The MPI calls that the tracer records, and how: one line a call. The C wrappers are made from it (generate.py), the
reader takes its kinds from the names (``runner/readers/raw_trace/operations.py``).

A line is ``Name parameter ... : recipe``, without the prefix MPI_. Parameters are words of TYPES, whose C types they
have; the recipe is a C function (several, with semicolons) of ``native/`` (without its prefix ``ms_``) that fills the
record after the call has returned, or, after the word ``around``, one that makes the call itself. No recipe: recorded
by name only. Calls with counts have a second form with large counts (MPI 4: Send_c). Those of COLLECTIVES have a
non-blocking form, too (Ibcast: one more parameter, the request), and a persistent one (Bcast_init of MPI 4: info,
request).

Fields of the record (``struct ms_operation`` in ``native/trace.h``) as the recipes fill them:

- ``communicator``: number within the process, in the order of making: 0 MPI_COMM_WORLD, 1 MPI_COMM_SELF; its members
  are in the definition ``{"communicator": n, "parent": n, "members": [world ranks]}``, ``remote`` those of the other
  group of an intercommunicator, -4 for one outside MPI_COMM_WORLD; long lists go on in lines with ``"more"`` and
  ``"of"`` (which of the two).
- ``peer``: world rank of the destination or source (-1 any source, -2 none); a receive's real source as soon as it is
  known, with the flag MS_WILDCARD where it was any; of rooted collectives the root within the communicator.
- ``source``: the same for the receive side of a sendrecv. ``tag`` likewise, with MS_ANY_TAG where it was any.
- ``bytes`` and ``receive_bytes``: what is sent, and what is received (of an unfinished receive: the room for it).
  Collectives: see OPERATIONS_SCHEMA of ``models/workload/__init__.py``; of reduce_scatter (and _block) ``bytes`` is one
  element.
- ``request``: number of the request that the call opens, or of the template that an X_init makes; never used twice.
- lists: gatherv (root), allgatherv and reduce_scatter: bytes to receive, or of each part, per member; scatterv (root):
  bytes to send per member; alltoallv and alltoallw: bytes to send per member, then to receive per member.
  Neighbour collectives: number of destinations, destinations, bytes to each, number of sources, sources, bytes.
  Start and Startall: the template's number and the request's, for each request that is started.
  Waits and tests: four numbers for each request that the call completed: request, source (world rank; -2 for none,
  no receive or an isendrecv, -3 if it was cancelled), bytes and tag received. A test that completes nothing lacks
  MS_COMPLETED. Where MS_COUNTED is set, the increase of the hardware counters comes first (definition "counters").
- MS_NULL_PEER: a partner was MPI_PROC_NULL. MS_INTERCOMMUNICATOR: partners are of the remote group; collectives on it
  have no sizes. MS_FAILED: the call returned an error, nothing is filled in.
- Makers of communicators: the one whose members all call. Windows and files have numbers as communicators do, with the
  members of the one that they were made of; ``peer`` is the target of a one-sided call, ``bytes`` what it puts there,
  ``receive_bytes`` what it gets; of a file, what is written there and what was asked for. Lists of MPI_Win_post
  and MPI_Win_start: the group's world ranks.
- Partitioned sends: the call that makes the last partition ready is the one that starts the request.

Not recorded: calls that are local (``mpi_standard.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from manyscale.runner.readers.raw_trace.gpu_calls import GPU_NAMES

_TYPES: Final = """
int                     dest source tag sendtag recvtag root num color key split_type assert rank lock_type amode whence
                        ndims reorder degree indegree outdegree leader remote_leader high required error_code maxprocs
                        target_rank flag_in partitions partition low high descriptor
int *                   flag provided index outcount indices argc errcodes
MPI_Count               part_count
const int *             dims periods remain nodes edges sources destinations degrees weights source_weights dest_weights
                        all_maxprocs
ms_partitions           partition_list
int/MPI_Count           count sendcount recvcount origin_count target_count result_count
const int */const MPI_Count *   sendcounts recvcounts
const int */const MPI_Aint *    displs sdispls rdispls
int/MPI_Aint            disp_unit
void *                  buf recvbuf base baseptr result_addr read_addr
const void *            cbuf sendbuf origin_addr compare_addr write_base
const char *            filename datarep port_name command string_tag
char **                 args commands
char ***                argv all_args
MPI_Datatype            datatype sendtype recvtype origin_type target_type result_type etype filetype
const MPI_Datatype *    sendtypes recvtypes
const MPI_Aint *        aint_sdispls aint_rdispls
MPI_Aint                target_disp size
MPI_Op                  op
MPI_Comm                comm peer_comm
MPI_Comm *              newcomm comm_ref
MPI_Group               group remote_group
MPI_Info                info
const MPI_Info *        infos
MPI_Errhandler          errhandler
MPI_Session *           session
ms_query_function       query
ms_free_function        free
ms_cancel_function      cancel
MPI_Request *           request requests
MPI_Status *            status statuses
MPI_Message *           message
MPI_Win                 win
MPI_Win *               newwin
MPI_File                file
MPI_File *              newfile
MPI_Offset              offset
"""

_POINT_TO_POINT: Final = """
Send cbuf count datatype dest tag comm : send(comm, dest, tag, BYTES(count, datatype))
Bsend cbuf count datatype dest tag comm : send(comm, dest, tag, BYTES(count, datatype))
Ssend cbuf count datatype dest tag comm : send(comm, dest, tag, BYTES(count, datatype))
Rsend cbuf count datatype dest tag comm : send(comm, dest, tag, BYTES(count, datatype))
Recv buf count datatype source tag comm status : recv(comm, source, tag, BYTES(count, datatype), status)
Isend cbuf count datatype dest tag comm request : isend(comm, dest, tag, BYTES(count, datatype), *request)
Ibsend cbuf count datatype dest tag comm request : isend(comm, dest, tag, BYTES(count, datatype), *request)
Issend cbuf count datatype dest tag comm request : isend(comm, dest, tag, BYTES(count, datatype), *request)
Irsend cbuf count datatype dest tag comm request : isend(comm, dest, tag, BYTES(count, datatype), *request)
Irecv buf count datatype source tag comm request : irecv(comm, source, tag, BYTES(count, datatype), *request)
Send_init cbuf count datatype dest tag comm request : send_init(comm, dest, tag, BYTES(count, datatype), *request)
Bsend_init cbuf count datatype dest tag comm request : send_init(comm, dest, tag, BYTES(count, datatype), *request)
Ssend_init cbuf count datatype dest tag comm request : send_init(comm, dest, tag, BYTES(count, datatype), *request)
Rsend_init cbuf count datatype dest tag comm request : send_init(comm, dest, tag, BYTES(count, datatype), *request)
Recv_init buf count datatype source tag comm request : recv_init(comm, source, tag, BYTES(count, datatype), *request)
Sendrecv sendbuf sendcount sendtype dest sendtag recvbuf recvcount recvtype source recvtag comm status
 : sendrecv(comm, dest, sendtag, BYTES(sendcount, sendtype), source, recvtag, BYTES(recvcount, recvtype), status)
Sendrecv_replace buf count datatype dest sendtag source recvtag comm status
 : sendrecv(comm, dest, sendtag, BYTES(count, datatype), source, recvtag, BYTES(count, datatype), status)
Isendrecv sendbuf sendcount sendtype dest sendtag recvbuf recvcount recvtype source recvtag comm request
 : isendrecv(comm, dest, sendtag, BYTES(sendcount, sendtype), source, recvtag, BYTES(recvcount, recvtype), *request)
Isendrecv_replace buf count datatype dest sendtag source recvtag comm request
 : isendrecv(comm, dest, sendtag, BYTES(count, datatype), source, recvtag, BYTES(count, datatype), *request)
Probe source tag comm status : probe(comm, source, tag, 1, status)
Iprobe source tag comm flag status : probe(comm, source, tag, *flag, status)
Mprobe source tag comm message status : mprobe(comm, source, tag, 1, *message, status)
Improbe source tag comm flag message status : mprobe(comm, source, tag, *flag, *message, status)
Mrecv buf count datatype message status : around mrecv
Imrecv buf count datatype message request : around imrecv
Psend_init cbuf partitions part_count datatype dest tag comm info request
 : partitioned_send(comm, dest, tag, partitions, BYTES(partitions * part_count, datatype), *request)
Precv_init buf partitions part_count datatype source tag comm info request
 : partitioned_receive(comm, source, tag, BYTES(partitions * part_count, datatype), *request)
Pready partition handle : ready(handle, 1)
Pready_range low high handle : ready(handle, high - low + 1)
Pready_list num partition_list handle : ready(handle, num)
Parrived handle partition flag
Grequest_start query free cancel base request
Start request : around start_request
Startall num requests : around startall
Request_free request : around request_free
Request_get_status handle flag status
Cancel request : around cancel
Wait request status : around wait
Waitall num requests statuses : around waitall
Waitany num requests index status : around waitany
Waitsome num requests outcount indices statuses : around waitsome
Test request flag status : around test
Testall num requests flag statuses : around testall
Testany num requests index flag status : around testany
Testsome num requests outcount indices statuses : around testsome
"""

_COLLECTIVES: Final = """
Barrier comm : collective(comm, MS_NONE, 0)
Bcast buf count datatype root comm : collective(comm, root, BYTES(count, datatype))
Reduce sendbuf recvbuf count datatype op root comm : collective(comm, root, BYTES(count, datatype))
Allreduce sendbuf recvbuf count datatype op comm : collective(comm, MS_NONE, BYTES(count, datatype))
Scan sendbuf recvbuf count datatype op comm : collective(comm, MS_NONE, BYTES(count, datatype))
Exscan sendbuf recvbuf count datatype op comm : collective(comm, MS_NONE, BYTES(count, datatype))
Allgather sendbuf sendcount sendtype recvbuf recvcount recvtype comm
 : collective(comm, MS_NONE, BYTES(recvcount, recvtype))
Alltoall sendbuf sendcount sendtype recvbuf recvcount recvtype comm
 : collective(comm, MS_NONE, BYTES(recvcount, recvtype))
Gather sendbuf sendcount sendtype recvbuf recvcount recvtype root comm
 : rooted(comm, root, EACH(sendcount, sendtype), EACH(recvcount, recvtype))
Scatter sendbuf sendcount sendtype recvbuf recvcount recvtype root comm
 : rooted(comm, root, EACH(recvcount, recvtype), EACH(sendcount, sendtype))
Gatherv sendbuf sendcount sendtype recvbuf recvcounts displs recvtype root comm
 : rooted_list(comm, root, EACH(sendcount, sendtype), LIST(recvcounts, recvtype), 1)
Scatterv sendbuf sendcounts displs sendtype recvbuf recvcount recvtype root comm
 : rooted_list(comm, root, EACH(recvcount, recvtype), LIST(sendcounts, sendtype), 0)
Allgatherv sendbuf sendcount sendtype recvbuf recvcounts displs recvtype comm
 : allgather_list(comm, LIST(recvcounts, recvtype))
Alltoallv sendbuf sendcounts sdispls sendtype recvbuf recvcounts rdispls recvtype comm
 : alltoall_list(comm, sendbuf, LIST(sendcounts, sendtype), LIST(recvcounts, recvtype))
Alltoallw sendbuf sendcounts sdispls sendtypes recvbuf recvcounts rdispls recvtypes comm
 : alltoall_list(comm, sendbuf, TYPED(sendcounts, sendtypes), TYPED(recvcounts, recvtypes))
Reduce_scatter sendbuf recvbuf recvcounts datatype op comm : reduce_scatter(comm, LIST(recvcounts, datatype))
Reduce_scatter_block sendbuf recvbuf recvcount datatype op comm : reduce_scatter(comm, EACH(recvcount, datatype))
Neighbor_allgather sendbuf sendcount sendtype recvbuf recvcount recvtype comm
 : neighbours(comm, EACH(sendcount, sendtype), EACH(recvcount, recvtype))
Neighbor_allgatherv sendbuf sendcount sendtype recvbuf recvcounts displs recvtype comm
 : neighbours(comm, EACH(sendcount, sendtype), LIST(recvcounts, recvtype))
Neighbor_alltoall sendbuf sendcount sendtype recvbuf recvcount recvtype comm
 : neighbours(comm, EACH(sendcount, sendtype), EACH(recvcount, recvtype))
Neighbor_alltoallv sendbuf sendcounts sdispls sendtype recvbuf recvcounts rdispls recvtype comm
 : neighbours(comm, LIST(sendcounts, sendtype), LIST(recvcounts, recvtype))
Neighbor_alltoallw sendbuf sendcounts aint_sdispls sendtypes recvbuf recvcounts aint_rdispls recvtypes comm
 : neighbours(comm, TYPED(sendcounts, sendtypes), TYPED(recvcounts, recvtypes))
"""

_COMMUNICATORS: Final = """
Comm_dup comm newcomm : new_communicator(comm, *newcomm)
Comm_dup_with_info comm info newcomm : new_communicator(comm, *newcomm)
Comm_idup comm newcomm request : new_communicator(comm, *newcomm); open(*request)
Comm_idup_with_info comm info newcomm request : new_communicator(comm, *newcomm); open(*request)
Comm_split comm color key newcomm : new_communicator(comm, *newcomm)
Comm_split_type comm split_type key info newcomm : new_communicator(comm, *newcomm)
Comm_create comm group newcomm : new_communicator(comm, *newcomm)
Comm_create_group comm group tag newcomm : new_communicator_of_its_own(*newcomm)
Comm_create_from_group group string_tag info errhandler newcomm : new_communicator_of_its_own(*newcomm)
Intercomm_create_from_groups group leader remote_group remote_leader string_tag info errhandler newcomm
 : new_communicator_of_its_own(*newcomm)
Cart_create comm ndims dims periods reorder newcomm : new_communicator(comm, *newcomm)
Cart_sub comm remain newcomm : new_communicator(comm, *newcomm)
Graph_create comm num nodes edges reorder newcomm : new_communicator(comm, *newcomm)
Dist_graph_create comm num sources degrees destinations weights info reorder newcomm : new_communicator(comm, *newcomm)
Dist_graph_create_adjacent comm indegree sources source_weights outdegree destinations dest_weights info reorder newcomm
 : new_communicator(comm, *newcomm)
Intercomm_create comm leader peer_comm remote_leader tag newcomm : new_communicator_of_its_own(*newcomm)
Intercomm_merge comm high newcomm : new_communicator(comm, *newcomm)
Comm_spawn command args maxprocs info root comm newcomm errcodes : new_communicator(comm, *newcomm)
Comm_spawn_multiple num commands all_args all_maxprocs infos root comm newcomm errcodes
 : new_communicator(comm, *newcomm)
Comm_join descriptor newcomm : new_communicator_of_its_own(*newcomm)
Comm_accept port_name info root comm newcomm : new_communicator(comm, *newcomm)
Comm_connect port_name info root comm newcomm : new_communicator(comm, *newcomm)
Comm_free comm_ref : around comm_free
Comm_disconnect comm_ref : around comm_free
"""

_ENVIRONMENT: Final = """
Init argc argv : initialised()
Init_thread argc argv required provided : initialised()
Finalize
Session_init info errhandler session : session_initialised(*session)
Session_finalize session : around session_finalize
Abort comm error_code : around abort
"""

_ONE_SIDED: Final = """
Win_create base size disp_unit info comm newwin : new_window(comm, *newwin)
Win_allocate size disp_unit info comm baseptr newwin : new_window(comm, *newwin)
Win_allocate_shared size disp_unit info comm baseptr newwin : new_window(comm, *newwin)
Win_create_dynamic info comm newwin : new_window(comm, *newwin)
Win_attach win base size
Win_detach win write_base
Win_free newwin : around win_free
Win_fence assert win : on_window(win)
Win_lock lock_type rank assert win : one_sided(win, rank, 0, 0)
Win_unlock rank win : one_sided(win, rank, 0, 0)
Win_lock_all assert win : on_window(win)
Win_unlock_all win : on_window(win)
Win_post group assert win : window_group(win, group)
Win_start group assert win : window_group(win, group)
Win_complete win : on_window(win)
Win_wait win : on_window(win)
Win_test win flag : window_test(win, *flag)
Win_flush rank win : one_sided(win, rank, 0, 0)
Win_flush_all win : on_window(win)
Win_flush_local rank win : one_sided(win, rank, 0, 0)
Win_flush_local_all win : on_window(win)
Win_sync win : on_window(win)
Put origin_addr origin_count origin_type target_rank target_disp target_count target_type win
 : one_sided(win, target_rank, BYTES(target_count, target_type), 0)
Get base origin_count origin_type target_rank target_disp target_count target_type win
 : one_sided(win, target_rank, 0, BYTES(target_count, target_type))
Accumulate origin_addr origin_count origin_type target_rank target_disp target_count target_type op win
 : one_sided(win, target_rank, BYTES(target_count, target_type), 0)
Get_accumulate origin_addr origin_count origin_type result_addr result_count result_type target_rank target_disp
 target_count target_type op win
 : one_sided(win, target_rank, BYTES(target_count, target_type), BYTES(target_count, target_type))
Fetch_and_op origin_addr result_addr datatype target_rank target_disp op win
 : one_sided(win, target_rank, BYTES(1, datatype), BYTES(1, datatype))
Compare_and_swap origin_addr compare_addr result_addr datatype target_rank target_disp win
 : one_sided(win, target_rank, BYTES(1, datatype), BYTES(1, datatype))
Rput origin_addr origin_count origin_type target_rank target_disp target_count target_type win request
 : one_sided(win, target_rank, BYTES(target_count, target_type), 0); open(*request)
Rget base origin_count origin_type target_rank target_disp target_count target_type win request
 : one_sided(win, target_rank, 0, BYTES(target_count, target_type)); open(*request)
Raccumulate origin_addr origin_count origin_type target_rank target_disp target_count target_type op win request
 : one_sided(win, target_rank, BYTES(target_count, target_type), 0); open(*request)
Rget_accumulate origin_addr origin_count origin_type result_addr result_count result_type target_rank target_disp
 target_count target_type op win request
 : one_sided(win, target_rank, BYTES(target_count, target_type), BYTES(target_count, target_type)); open(*request)
"""
_FILES: Final = """
File_open comm filename amode info newfile : new_file(comm, *newfile)
File_close newfile : around file_close
File_delete filename info
File_set_size file offset : on_file(file)
File_preallocate file offset : on_file(file)
File_set_view file offset etype filetype datarep info : on_file(file)
File_sync file : on_file(file)
File_seek_shared file offset whence : on_file(file)
File_set_atomicity file flag_in : on_file(file)
File_read file buf count datatype status : file_access(file, 0, BYTES(count, datatype))
File_read_all file buf count datatype status : file_access(file, 0, BYTES(count, datatype))
File_read_at file offset buf count datatype status : file_access(file, 0, BYTES(count, datatype))
File_read_at_all file offset buf count datatype status : file_access(file, 0, BYTES(count, datatype))
File_read_shared file buf count datatype status : file_access(file, 0, BYTES(count, datatype))
File_read_ordered file buf count datatype status : file_access(file, 0, BYTES(count, datatype))
File_read_all_begin file buf count datatype : file_access(file, 0, BYTES(count, datatype)); open_split(file)
File_read_all_end file buf status : on_file(file); close_split(file)
File_read_at_all_begin file offset buf count datatype : file_access(file, 0, BYTES(count, datatype)); open_split(file)
File_read_at_all_end file buf status : on_file(file); close_split(file)
File_read_ordered_begin file buf count datatype : file_access(file, 0, BYTES(count, datatype)); open_split(file)
File_read_ordered_end file buf status : on_file(file); close_split(file)
File_iread file buf count datatype request
File_iread_all file buf count datatype request : file_access(file, 0, BYTES(count, datatype)); open(*request)
File_iread_at file offset buf count datatype request
File_iread_at_all file offset buf count datatype request : file_access(file, 0, BYTES(count, datatype)); open(*request)
File_iread_shared file buf count datatype request
File_write file cbuf count datatype status : file_access(file, BYTES(count, datatype), 0)
File_write_all file cbuf count datatype status : file_access(file, BYTES(count, datatype), 0)
File_write_at file offset cbuf count datatype status : file_access(file, BYTES(count, datatype), 0)
File_write_at_all file offset cbuf count datatype status : file_access(file, BYTES(count, datatype), 0)
File_write_shared file cbuf count datatype status : file_access(file, BYTES(count, datatype), 0)
File_write_ordered file cbuf count datatype status : file_access(file, BYTES(count, datatype), 0)
File_write_all_begin file cbuf count datatype : file_access(file, BYTES(count, datatype), 0); open_split(file)
File_write_all_end file cbuf status : on_file(file); close_split(file)
File_write_at_all_begin file offset cbuf count datatype
 : file_access(file, BYTES(count, datatype), 0); open_split(file)
File_write_at_all_end file cbuf status : on_file(file); close_split(file)
File_write_ordered_begin file cbuf count datatype : file_access(file, BYTES(count, datatype), 0); open_split(file)
File_write_ordered_end file cbuf status : on_file(file); close_split(file)
File_iwrite file cbuf count datatype request
File_iwrite_all file cbuf count datatype request : file_access(file, BYTES(count, datatype), 0); open(*request)
File_iwrite_at file offset cbuf count datatype request
File_iwrite_at_all file offset cbuf count datatype request
 : file_access(file, BYTES(count, datatype), 0); open(*request)
File_iwrite_shared file cbuf count datatype request
"""

# of MPI 4, besides the forms with large counts and the persistent collectives
_NEW: Final = ("Isendrecv", "P", "Session_", "Comm_create_from_group", "Intercomm_create_from_groups")
_OLD: Final = ("Probe", "Put")  # begin as one of these
# Calls whose number varies from run to run: they do not count for the windows of the detailed level.
UNREPEATED: Final = frozenset(
    f"MPI_{name}" for name in ("Iprobe", "Improbe", "Test", "Testall", "Testany", "Testsome", "Waitsome",
                               "Request_get_status", "Parrived", "Win_test")
)  # fmt: skip


@dataclass(frozen=True)
class Call:
    """A call of the table. ``name`` has its prefix; ``parameters``: (C type, C type with large counts, name).
    ``recipe`` fills the record after the call, ``around`` makes the call; both may be empty. ``since``: the version of
    MPI that has it, 3 for all older ones."""

    name: str
    parameters: tuple[tuple[str, str, str], ...]
    recipe: str = ""
    around: str = ""
    since: int = 3

    @property
    def has_large_counts(self) -> bool:
        """Whether MPI 4 has a second form of it."""
        return any(narrow != wide for narrow, wide, _ in self.parameters)


def _types() -> dict[str, tuple[str, str]]:
    types, current = {"handle": ("MPI_Request", "MPI_Request")}, ""
    for line in _TYPES.strip().splitlines():
        head, words = line[:24].rstrip(), line[24:]
        if "/" in line and not line.startswith(" "):  # two types, the second of MPI 4
            head, words = line.split("   ", 1)
        current = head.strip() or current
        narrow, _, wide = current.partition("/")
        types.update(dict.fromkeys(words.split(), (narrow, wide or narrow)))
    return types


TYPES: Final = _types()


def _lines(table: str) -> list[str]:
    return table.strip().replace("\n ", " ").splitlines()


def _parse(line: str) -> Call:
    head, _, recipe = line.partition(" : ")
    name, *words = head.split()
    parameters = tuple((*TYPES[word], word) for word in words)
    since = 4 if name.startswith(_NEW) and name not in _OLD else 3
    if recipe.startswith("around "):
        return Call(f"MPI_{name}", parameters, around=recipe.removeprefix("around ").strip(), since=since)
    return Call(f"MPI_{name}", parameters, recipe.strip(), since=since)


def _forms(call: Call) -> list[Call]:
    """A collective, its non-blocking form and its persistent one."""
    name = call.name.removeprefix("MPI_")
    request, info = (*TYPES["request"], "request"), (*TYPES["info"], "info")
    return [
        call,
        Call(f"MPI_I{name[0].lower()}{name[1:]}", (*call.parameters, request), f"{call.recipe}; open(*request)"),
        Call(f"MPI_{name}_init", (*call.parameters, info, request), f"{call.recipe}; init(*request)", since=4),
    ]


COLLECTIVE_NAMES: Final = tuple(f"MPI_{line.split()[0]}" for line in _lines(_COLLECTIVES))
CALLS: Final = (
    *(_parse(line) for line in (*_lines(_ENVIRONMENT), *_lines(_POINT_TO_POINT))),
    *(form for line in _lines(_COLLECTIVES) for form in _forms(_parse(line))),
    *(_parse(line) for line in (*_lines(_COMMUNICATORS), *_lines(_ONE_SIDED), *_lines(_FILES))),
)
NAMES: Final = (*(call.name for call in CALLS), *GPU_NAMES)
