"""Every function of the MPI standard, and what becomes of a call of it.

The names are those of MPI 4.1 (MPI Forum, 2 November 2023; the language-neutral list of its interfaces for 4.0, which
the Forum publishes as pympistandard, and the additions that its change log names for 4.1), with those that older
versions had and MPI 3.0 removed. A form with large counts (``_c``) is as the one without.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import Final

from manyscale.runner.readers.raw_trace.mpi_calls import CALLS


class Role(StrEnum):
    """``replayed``: with its messages, their sizes and what it waits for. ``synchronising``: as what it makes ranks
    wait for; what else it does costs nothing, but for the bytes of files. ``local``: it waits for no other rank, and
    takes no part in the replay (to read or write a file costs what its bytes do). ``refused``: what it does stands for
    time that no trace of this program holds; without it a number means nothing.
    """

    replayed = "replayed"
    synchronising = "synchronising"
    local = "local"
    refused = "refused"


# calls that are recorded, by the others' names
_SYNCHRONISING: Final = """
Cart_create Cart_sub Comm_create Comm_create_from_group Comm_create_group Comm_disconnect Comm_dup Comm_dup_with_info
Comm_idup Comm_idup_with_info Comm_split Comm_split_type Dist_graph_create Dist_graph_create_adjacent File_close
File_iread_all File_iread_at_all File_iwrite_all File_iwrite_at_all File_open File_preallocate File_read_all
File_read_all_begin File_read_all_end File_read_at_all File_read_at_all_begin File_read_at_all_end File_read_ordered
File_read_ordered_begin File_read_ordered_end File_seek_shared File_set_atomicity File_set_size File_set_view
File_sync File_write_all File_write_all_begin File_write_all_end File_write_at_all File_write_at_all_begin
File_write_at_all_end File_write_ordered File_write_ordered_begin File_write_ordered_end Graph_create Intercomm_create
Intercomm_create_from_groups Intercomm_merge
"""
_REFUSED: Final = "Comm_accept Comm_connect Comm_join Comm_spawn Comm_spawn_multiple Grequest_start"
_RECORDED_LOCAL: Final = """
Cancel Comm_free File_delete File_iread File_iread_at File_iread_shared File_iwrite File_iwrite_at File_iwrite_shared
File_read File_read_at File_read_shared File_write File_write_at File_write_shared Parrived Request_free
Request_get_status Win_attach Win_detach Win_lock Win_lock_all Win_sync
"""
# calls that are not
_LOCAL: Final = """
Add_error_class Add_error_code Add_error_string Address Aint_add Aint_diff Alloc_mem Attr_delete Attr_get Attr_put
Buffer_attach Buffer_detach Buffer_flush Buffer_iflush Cart_coords Cart_get Cart_map Cart_rank Cart_shift Cartdim_get
Close_port Comm_attach_buffer Comm_c2f Comm_call_errhandler Comm_compare Comm_create_errhandler Comm_create_keyval
Comm_delete_attr Comm_detach_buffer Comm_f2c Comm_flush_buffer Comm_free_keyval Comm_get_attr Comm_get_errhandler
Comm_get_info Comm_get_name Comm_get_parent Comm_group Comm_iflush_buffer Comm_rank Comm_remote_group Comm_remote_size
Comm_set_attr Comm_set_errhandler Comm_set_info Comm_set_name Comm_size Comm_test_inter Dims_create
Dist_graph_neighbors Dist_graph_neighbors_count Errhandler_c2f Errhandler_create Errhandler_f2c Errhandler_free
Errhandler_get Errhandler_set Error_class Error_string F_sync_reg File_c2f File_call_errhandler File_create_errhandler
File_f2c File_get_amode File_get_atomicity File_get_byte_offset File_get_errhandler File_get_group File_get_info
File_get_position File_get_position_shared File_get_size File_get_type_extent File_get_view File_seek
File_set_errhandler File_set_info Finalized Free_mem Get_address Get_count Get_elements Get_elements_x
Get_hw_resource_info Get_library_version Get_processor_name Get_version Graph_get Graph_map Graph_neighbors
Graph_neighbors_count Graphdims_get Grequest_complete Group_c2f Group_compare Group_difference Group_excl Group_f2c
Group_free Group_from_session_pset Group_incl Group_intersection Group_range_excl Group_range_incl Group_rank
Group_size Group_translate_ranks Group_union Info_c2f Info_create Info_create_env Info_delete Info_dup Info_f2c
Info_free Info_get Info_get_nkeys Info_get_nthkey Info_get_string Info_get_valuelen Info_set Initialized
Is_thread_main Keyval_create Keyval_free Lookup_name Message_c2f Message_f2c Op_c2f Op_commutative Op_create Op_f2c
Op_free Open_port Pack Pack_external Pack_external_size Pack_size Pcontrol Publish_name Query_thread Reduce_local
Register_datarep Remove_error_class Remove_error_code Remove_error_string Request_c2f Request_f2c
Request_get_status_all Request_get_status_any Request_get_status_some Session_attach_buffer Session_c2f
Session_call_errhandler Session_create_errhandler Session_detach_buffer Session_f2c Session_flush_buffer
Session_get_errhandler Session_get_info Session_get_nth_pset Session_get_num_psets Session_get_pset_info
Session_iflush_buffer Session_set_errhandler Sizeof Status_c2f Status_c2f08 Status_f082c Status_f082f Status_f2c
Status_f2f08 Status_get_error Status_get_source Status_get_tag Status_set_cancelled Status_set_elements
Status_set_elements_x Status_set_error Status_set_source Status_set_tag Test_cancelled Topo_test Type_c2f Type_commit
Type_contiguous Type_create_darray Type_create_f90_complex Type_create_f90_integer Type_create_f90_real
Type_create_hindexed Type_create_hindexed_block Type_create_hvector Type_create_indexed_block Type_create_keyval
Type_create_resized Type_create_struct Type_create_subarray Type_delete_attr Type_dup Type_extent Type_f2c Type_free
Type_free_keyval Type_get_attr Type_get_contents Type_get_envelope Type_get_extent Type_get_extent_x Type_get_name
Type_get_true_extent Type_get_true_extent_x Type_get_value_index Type_hindexed Type_hvector Type_indexed Type_lb
Type_match_size Type_set_attr Type_set_name Type_size Type_size_x Type_struct Type_ub Type_vector Unpack
Unpack_external Unpublish_name Win_c2f Win_call_errhandler Win_create_errhandler Win_create_keyval Win_delete_attr
Win_f2c Win_free_keyval Win_get_attr Win_get_errhandler Win_get_group Win_get_info Win_get_name Win_set_attr
Win_set_errhandler Win_set_info Win_set_name Win_shared_query Wtick Wtime
"""
_TOOL_INTERFACE: Final = """
T_category_changed T_category_get_categories T_category_get_cvars T_category_get_events T_category_get_index
T_category_get_info T_category_get_num T_category_get_num_events T_category_get_pvars T_cvar_get_index T_cvar_get_info
T_cvar_get_num T_cvar_handle_alloc T_cvar_handle_free T_cvar_read T_cvar_write T_enum_get_info T_enum_get_item
T_event_callback_get_info T_event_callback_set_info T_event_copy T_event_get_index T_event_get_info T_event_get_num
T_event_get_source T_event_get_timestamp T_event_handle_alloc T_event_handle_free T_event_handle_get_info
T_event_handle_set_info T_event_read T_event_register_callback T_event_set_dropped_handler T_finalize T_init_thread
T_pvar_get_index T_pvar_get_info T_pvar_get_num T_pvar_handle_alloc T_pvar_handle_free T_pvar_read T_pvar_readreset
T_pvar_reset T_pvar_session_create T_pvar_session_free T_pvar_start T_pvar_stop T_pvar_write T_source_get_info
T_source_get_num T_source_get_timestamp
"""


@cache
def roles() -> dict[str, Role]:
    """The role of every function, by its name; forms with large counts are not listed."""
    found = dict.fromkeys((call.name for call in CALLS), Role.replayed)
    for role, names in (
        (Role.synchronising, _SYNCHRONISING),
        (Role.refused, _REFUSED),
        (Role.local, _RECORDED_LOCAL + _LOCAL + _TOOL_INTERFACE),
    ):
        found |= {f"MPI_{name}": role for name in names.split()}
    return found


def role_of(name: str) -> Role | None:
    """The role of a function, None for one that is not MPI's."""
    return roles().get(name.removesuffix("_c"), roles().get(name))
