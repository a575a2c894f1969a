"""Record layouts of DUMPI: which fields each MPI function stores, in what order and width.

Written from the reading functions of sst-dumpi (Sandia, github.com/sstsimulator/sst-dumpi, dumpi/common: funclabels.h
for the numbers, dumpiio.c for the fields, iodefs.h for the widths). Valid from version 0.6.9 of the format on, where
the last errors of the early writers were mended.

One line a function, in the order of its number, without the prefix MPI_ (IO_ stands for MPIO_). A field is name:width:
1, 2, 4 or 8 bytes, big-endian, signed but for single bytes; a * is a 32-bit length, then that many elements; c are
characters, S statuses. A field with ? is stored only where the rank is the root. Lines that start with a blank go on.
Names are those of the MPI standard's arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_TABLE: Final = """
Send count:4 datatype:2 dest:4 tag:4 comm:2
Recv count:4 datatype:2 source:4 tag:4 comm:2 status:S
Get_count status:S datatype:2 count:4
Bsend count:4 datatype:2 dest:4 tag:4 comm:2
Ssend count:4 datatype:2 dest:4 tag:4 comm:2
Rsend count:4 datatype:2 dest:4 tag:4 comm:2
Buffer_attach size:4
Buffer_detach size:4
Isend count:4 datatype:2 dest:4 tag:4 comm:2 request:4
Ibsend count:4 datatype:2 dest:4 tag:4 comm:2 request:4
Issend count:4 datatype:2 dest:4 tag:4 comm:2 request:4
Irsend count:4 datatype:2 dest:4 tag:4 comm:2 request:4
Irecv count:4 datatype:2 source:4 tag:4 comm:2 request:4
Wait request:4 status:S
Test request:4 flag:4 status:S
Request_free request:4
Waitany count:4 requests:4* index:4 status:S
Testany count:4 requests:4* index:4 flag:4 status:S
Waitall count:4 requests:4* statuses:S
Testall count:4 requests:4* flag:4 statuses:S
Waitsome count:4 requests:4* outcount:4 indices:4* statuses:S
Testsome count:4 requests:4* outcount:4 indices:4* statuses:S
Iprobe source:4 tag:4 comm:2 flag:4 status:S
Probe source:4 tag:4 comm:2 status:S
Cancel request:4
Test_cancelled status:S cancelled:4
Send_init count:4 datatype:2 dest:4 tag:4 comm:2 request:4
Bsend_init count:4 datatype:2 dest:4 tag:4 comm:2 request:4
Ssend_init count:4 datatype:2 dest:4 tag:4 comm:2 request:4
Rsend_init count:4 datatype:2 dest:4 tag:4 comm:2 request:4
Recv_init count:4 datatype:2 source:4 tag:4 comm:2 request:4
Start request:4
Startall count:4 requests:4*
Sendrecv sendcount:4 sendtype:2 dest:4 sendtag:4 recvcount:4 recvtype:2 source:4 recvtag:4 comm:2 status:S
Sendrecv_replace count:4 datatype:2 dest:4 sendtag:4 source:4 recvtag:4 comm:2 status:S
Type_contiguous count:4 oldtype:2 newtype:2
Type_vector count:4 blocklength:4 stride:4 oldtype:2 newtype:2
Type_hvector count:4 blocklength:4 stride:4 oldtype:2 newtype:2
Type_indexed count:4 lengths:4* indices:4* oldtype:2 newtype:2
Type_hindexed count:4 lengths:4* indices:4* oldtype:2 newtype:2
Type_struct count:4 lengths:4* indices:4* oldtypes:2* newtype:2
Address address:4
Type_extent datatype:2 extent:4
Type_size datatype:2 size:4
Type_lb datatype:2 lb:4
Type_ub datatype:2 ub:4
Type_commit datatype:2
Type_free datatype:2
Get_elements status:S datatype:2 elements:4
Pack incount:4 datatype:2 outcount:4 position_in:4 position_out:4 comm:2
Unpack incount:4 position_in:4 position_out:4 outcount:4 datatype:2 comm:2
Pack_size incount:4 datatype:2 comm:2 size:4
Barrier comm:2
Bcast count:4 datatype:2 root:4 comm:2
Gather commrank:4 sendcount:4 sendtype:2 root:4 comm:2 ?recvcount:4 ?recvtype:2
Gatherv commrank:4 commsize:4 sendcount:4 sendtype:2 root:4 comm:2 ?recvcounts:4* ?displs:4* recvtype:2
Scatter commrank:4 recvcount:4 recvtype:2 root:4 comm:2 ?sendcount:4 ?sendtype:2
Scatterv commrank:4 commsize:4 sendtype:2 recvcount:4 recvtype:2 root:4 comm:2 ?sendcounts:4* ?displs:4*
Allgather sendcount:4 sendtype:2 recvcount:4 recvtype:2 comm:2
Allgatherv commsize:4 sendcount:4 sendtype:2 recvcounts:4* displs:4* recvtype:2 comm:2
Alltoall sendcount:4 sendtype:2 recvcount:4 recvtype:2 comm:2
Alltoallv commsize:4 sendcounts:4* senddispls:4* sendtype:2 recvcounts:4* recvdispls:4* recvtype:2 comm:2
Reduce count:4 datatype:2 op:1 root:4 comm:2
Op_create commute:4 op:1
Op_free op:1
Allreduce count:4 datatype:2 op:1 comm:2
Reduce_scatter commsize:4 recvcounts:4* datatype:2 op:1 comm:2
Scan count:4 datatype:2 op:1 comm:2
Group_size group:2 size:4
Group_rank group:2 rank:4
Group_translate_ranks group1:2 count:4 ranks1:4* group2:2 ranks2:4*
Group_compare group1:2 group2:2 result:1
Comm_group comm:2 group:2
Group_union group1:2 group2:2 newgroup:2
Group_intersection group1:2 group2:2 newgroup:2
Group_difference group1:2 group2:2 newgroup:2
Group_incl group:2 count:4 ranks:4* newgroup:2
Group_excl group:2 count:4 ranks:4* newgroup:2
Group_range_incl group:2 count:4 ranges:4** newgroup:2
Group_range_excl group:2 count:4 ranges:4** newgroup:2
Group_free group:2
Comm_size comm:2 size:4
Comm_rank comm:2 rank:4
Comm_compare comm1:2 comm2:2 result:1
Comm_dup oldcomm:2 newcomm:2
Comm_create oldcomm:2 group:2 newcomm:2
Comm_split oldcomm:2 color:4 key:4 newcomm:2
Comm_free comm:2
Comm_test_inter comm:2 inter:4
Comm_remote_size comm:2 size:4
Comm_remote_group comm:2 group:2
Intercomm_create localcomm:2 localleader:4 remotecomm:2 remoteleader:4 tag:4 newcomm:2
Intercomm_merge comm:2 high:4 newcomm:2
Keyval_create key:2
Keyval_free key:2
Attr_put comm:2 key:4
Attr_get comm:2 key:4 flag:4
Attr_delete comm:2 key:4
Topo_test comm:2 topo:1
Cart_create oldcomm:2 ndim:4 dims:4* periods:4* reorder:4 newcomm:2
Dims_create nodes:4 ndim:4 dims_in:4* dims_out:4*
Graph_create numedges:4 oldcomm:2 nodes:4 index:4* edges:4* reorder:4 newcomm:2
Graphdims_get comm:2 nodes:4 edges:4
Graph_get totedges:4 totnodes:4 comm:2 maxindex:4 maxedges:4 index:4* edges:4*
Cartdim_get comm:2 ndim:4
Cart_get ndim:4 comm:2 maxdims:4 dims:4* periods:4* coords:4*
Cart_rank ndim:4 comm:2 coords:4* rank:4
Cart_coords ndim:4 comm:2 rank:4 maxdims:4 coords:4*
Graph_neighbors_count comm:2 rank:4 nneigh:4
Graph_neighbors nneigh:4 comm:2 rank:4 maxneighbors:4 neighbors:4*
Cart_shift comm:2 direction:4 displ:4 source:4 dest:4
Cart_sub ndim:4 oldcomm:2 remain_dims:4* newcomm:2
Cart_map comm:2 ndim:4 dims:4* period:4* newrank:4
Graph_map numedges:4 comm:2 nodes:4 index:4* edges:4* newrank:4
Get_processor_name name:c* resultlen:4
Get_version version:4 subversion:4
Errhandler_create errhandler:2
Errhandler_set comm:2 errhandler:2
Errhandler_get comm:2 errhandler:2
Errhandler_free errhandler:2
Error_string errorcode:4 errorstring:c* resultlen:4
Error_class errorcode:4 errorclass:4
Wtime
Wtick
Init argv:c**
Finalize
Initialized result:4
Abort comm:2 errorcode:4
Pcontrol
Close_port portname:c*
Comm_accept portname:c* info:2 root:4 oldcomm:2 newcomm:2
Comm_connect portname:c* info:2 root:4 oldcomm:2 newcomm:2
Comm_disconnect comm:2
Comm_get_parent parent:2
Comm_join fd:4 comm:2
Comm_spawn oldcommrank:4 root:4 oldcomm:2 newcomm:2 ?command:c* ?argv:c** ?maxprocs:4 ?info:2 ?errcodes:4*
Comm_spawn_multiple totprocs:4 oldcommrank:4 root:4 oldcomm:2 newcomm:2 ?count:4 ?commands:c**
  ?argvs:c*** ?maxprocs:4* ?info:2* ?errcodes:4*
Lookup_name servicename:c* info:2 portname:c*
Open_port info:2 portname:c*
Publish_name servicename:c* info:2 portname:c*
Unpublish_name servicename:c* info:2 portname:c*
Accumulate origincount:4 origintype:2 targetrank:4 targetdisp:4 targetcount:4 targettype:2 op:1 win:2
Get origincount:4 origintype:2 targetrank:4 targetdisp:4 targetcount:4 targettype:2 win:2
Put origincount:4 origintype:2 targetrank:4 targetdisp:4 targetcount:4 targettype:2 win:2
Win_complete win:2
Win_create size:4 dispunit:4 info:2 comm:2 win:2
Win_fence assertion:1 win:2
Win_free win:2
Win_get_group win:2 group:2
Win_lock locktype:1 winrank:4 assertion:1 win:2
Win_post group:2 assertion:1 win:2
Win_start group:2 assertion:1 win:2
Win_test win:2 flag:4
Win_unlock winrank:4 win:2
Win_wait win:2
Alltoallw commsize:4 sendcounts:4* senddispls:4* sendtypes:2* recvcounts:4* recvdispls:4* recvtypes:2* comm:2
Exscan count:4 datatype:2 op:1 comm:2
Add_error_class errorclass:4
Add_error_code errorclass:4 errorcode:4
Add_error_string errorcode:4 errorstring:c*
Comm_call_errhandler comm:2 errorcode:4
Comm_create_keyval keyval:2
Comm_delete_attr comm:2 keyval:2
Comm_free_keyval keyval:2
Comm_get_attr comm:2 keyval:2 flag:4
Comm_get_name comm:2 name:c* resultlen:4
Comm_set_attr comm:2 keyval:2
Comm_set_name comm:2 name:c*
File_call_errhandler file:2 errorcode:4
Grequest_complete request:4
Grequest_start request:4
Init_thread argv:c** required:1 provided:1
Is_thread_main flag:4
Query_thread supported:1
Status_set_cancelled status:S flag:4
Status_set_elements status:S datatype:2 count:4
Type_create_keyval keyval:2
Type_delete_attr datatype:2 keyval:2
Type_dup oldtype:2 newtype:2
Type_free_keyval keyval:2
Type_get_attr datatype:2 keyval:2 flag:4
Type_get_contents numdatatypes:4 numaddresses:4 numintegers:4 datatype:2 maxintegers:4 maxaddresses:4 maxdatatypes:4
  arrintegers:4* arraddresses:4* arrdatatypes:2*
Type_get_envelope datatype:2 numintegers:4 numaddresses:4 numdatatypes:4 combiner:1
Type_get_name datatype:2 name:c* resultlen:4
Type_set_attr datatype:2 keyval:2
Type_set_name datatype:2 name:c*
Type_match_size typeclass:1 size:4 datatype:2
Win_call_errhandler win:2 errorcode:4
Win_create_keyval keyval:2
Win_delete_attr win:2 keyval:2
Win_free_keyval keyval:2
Win_get_attr win:2 keyval:2 flag:4
Win_get_name win:2 name:c* resultlen:4
Win_set_attr win:2 keyval:2
Win_set_name win:2 name:c*
Alloc_mem size:4 info:2
Comm_create_errhandler errhandler:2
Comm_get_errhandler comm:2 errhandler:2
Comm_set_errhandler comm:2 errhandler:2
File_create_errhandler errhandler:2
File_get_errhandler file:2 errhandler:2
File_set_errhandler file:2 errhandler:2
Finalized flag:4
Free_mem
Get_address address:4
Info_create info:2
Info_delete info:2 key:c*
Info_dup oldinfo:2 newinfo:2
Info_free info:2
Info_get info:2 key:c* valuelength:4 value:c* flag:4
Info_get_nkeys info:2 nkeys:4
Info_get_nthkey info:2 n:4 key:c*
Info_get_valuelen info:2 key:c* valuelen:4 flag:4
Info_set info:2 key:c* value:c*
Pack_external datarep:c* incount:4 intype:2 outcount:4 position_in:4 position_out:4
Pack_external_size datarep:c* incount:4 datatype:2 size:4
Request_get_status request:4 flag:4 status:S
Type_create_darray size:4 rank:4 ndims:4 gsizes:4* distribs:1* dargs:4* psizes:4* order:1 oldtype:2 newtype:2
Type_create_hindexed count:4 blocklengths:4* displacements:4* oldtype:2 newtype:2
Type_create_hvector count:4 blocklength:4 stride:4 oldtype:2 newtype:2
Type_create_indexed_block count:4 blocklength:4 displacements:4* oldtype:2 newtype:2
Type_create_resized oldtype:2 lb:4 extent:4 newtype:2
Type_create_struct count:4 blocklengths:4* displacements:4* oldtypes:2* newtype:2
Type_create_subarray ndims:4 sizes:4* subsizes:4* starts:4* order:1 oldtype:2 newtype:2
Type_get_extent datatype:2 lb:4 extent:4
Type_get_true_extent datatype:2 lb:4 extent:4
Unpack_external datarep:c* insize:4 position_in:4 position_out:4 outcount:4 datatype:2
Win_create_errhandler errhandler:2
Win_get_errhandler win:2 errhandler:2
Win_set_errhandler win:2 errhandler:2
File_open comm:2 filename:c* amode:1 info:2 file:2
File_close file:2
File_delete filename:c* info:2
File_set_size file:2 size:8
File_preallocate file:2 size:8
File_get_size file:2 size:8
File_get_group file:2 group:2
File_get_amode file:2 amode:1
File_set_info file:2 info:2
File_get_info file:2 info:2
File_set_view file:2 offset:8 hosttype:2 filetype:2 datarep:c* info:2
File_get_view file:2 offset:8 hosttype:2 filetype:2 datarep:c*
File_read_at file:2 offset:8 count:4 datatype:2 status:S
File_read_at_all file:2 offset:8 count:4 datatype:2 status:S
File_write_at file:2 offset:8 count:4 datatype:2 status:S
File_write_at_all file:2 offset:8 count:4 datatype:2 status:S
File_iread_at file:2 offset:8 count:4 datatype:2 request:4
File_iwrite_at file:2 offset:8 count:4 datatype:2 request:4
File_read file:2 count:4 datatype:2 status:S
File_read_all file:2 count:4 datatype:2 status:S
File_write file:2 count:4 datatype:2 status:S
File_write_all file:2 count:4 datatype:2 status:S
File_iread file:2 count:4 datatype:2 request:4
File_iwrite file:2 count:4 datatype:2 request:4
File_seek file:2 offset:8 whence:1
File_get_position file:2 offset:8
File_get_byte_offset file:2 offset:8 bytes:8
File_read_shared file:2 count:4 datatype:2 status:S
File_write_shared file:2 count:4 datatype:2 status:S
File_iread_shared file:2 count:4 datatype:2 request:4
File_iwrite_shared file:2 count:4 datatype:2 request:4
File_read_ordered file:2 count:4 datatype:2 status:S
File_write_ordered file:2 count:4 datatype:2 status:S
File_seek_shared file:2 offset:8 whence:1
File_get_position_shared file:2 offset:8
File_read_at_all_begin file:2 offset:8 count:4 datatype:2
File_read_at_all_end file:2 status:S
File_write_at_all_begin file:2 offset:8 count:4 datatype:2
File_write_at_all_end file:2 status:S
File_read_all_begin file:2 count:4 datatype:2
File_read_all_end file:2 status:S
File_write_all_begin file:2 count:4 datatype:2
File_write_all_end file:2 status:S
File_read_ordered_begin file:2 count:4 datatype:2
File_read_ordered_end file:2 status:S
File_write_ordered_begin file:2 count:4 datatype:2
File_write_ordered_end file:2 status:S
File_get_type_extent file:2 datatype:2 extent:4
Register_datarep name:c*
File_set_atomicity file:2 flag:4
File_get_atomicity file:2 flag:4
File_sync file:2
IO_Test request:4 flag:4 status:S
IO_Wait request:4 status:S
IO_Testall count:4 requests:4* flag:4 statuses:S
IO_Waitall count:4 requests:4* statuses:S
IO_Testany count:4 requests:4* flag:4 index:4 statuses:S
IO_Waitany count:4 requests:4* index:4 statuses:S
IO_Waitsome count:4 requests:4* outcount:4 indices:4* statuses:S
IO_Testsome count:4 requests:4* outcount:4 indices:4* statuses:S
ALL_FUNCTIONS
Function_enter address:8
Function_exit address:8
"""

STATUSES: Final = 0  # codes of a field's form; others are 16 * dimensions + width, and these bits
TEXT: Final = 64
ONLY_AT_ROOT: Final = 128
_WIDTHS: Final = {"S": STATUSES, "c": TEXT + 1, "1": 1, "2": 2, "4": 4, "8": 8}
ALL_FUNCTIONS: Final = 290  # numbers of MPI functions
END_OF_STREAM: Final = 293


@dataclass(frozen=True)
class Layout:
    """A function's name and its fields. ``codes``: the form of each field. ``rank_field`` and ``root_field``: which
    fields say whether the rank is the root, where that decides what is stored."""

    name: str
    fields: tuple[str, ...]
    codes: tuple[int, ...]

    @property
    def decides(self) -> tuple[int, int]:
        """Places of the fields that hold the rank and the root; (-1, -1) where all fields are always stored."""
        if not any(code & ONLY_AT_ROOT for code in self.codes):
            return -1, -1
        rank = "commrank" if "commrank" in self.fields else "oldcommrank"
        return self.fields.index(rank), self.fields.index("root")


def _layout(line: str) -> Layout:
    name, *fields = line.split()
    names, codes = [], []
    for field in fields:
        text, form = field.split(":")
        code = 16 * form.count("*") + _WIDTHS[form[0]]
        names.append(text.lstrip("?"))
        codes.append(code | (ONLY_AT_ROOT if text.startswith("?") else 0))
    return Layout(f"MPI{name[1:]}" if name.startswith("IO_") else f"MPI_{name}", tuple(names), tuple(codes))


# The number of a function is its place; the two behind the MPI functions are entry and exit of a user's function.
LAYOUTS: Final = tuple(_layout(line) for line in _TABLE.strip().replace("\n ", " ").split("\n"))
NUMBER: Final = {layout.name: number for number, layout in enumerate(LAYOUTS)}
FUNCTION_ENTER, FUNCTION_EXIT = NUMBER["MPI_Function_enter"], NUMBER["MPI_Function_exit"]
NEVER_WRITTEN: Final = NUMBER["MPI_Pcontrol"]  # has a number, but no record
