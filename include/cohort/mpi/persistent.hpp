// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The functions that make persistent requests of collectives: those of MPI 4, or the same
/// ones of Open MPI before it has them, whose names begin with MPIX.

#include <cohort/mpi/native.hpp>

#if MPI_VERSION < 4 && defined(OPEN_MPI) && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

namespace cohort::mpi::persistent {

#if MPI_VERSION >= 4
inline constexpr bool exists = true;
inline constexpr auto all_gather = &MPI_Allgather_init;
inline constexpr auto all_reduce = &MPI_Allreduce_init;
inline constexpr auto all_to_all = &MPI_Alltoall_init;
inline constexpr auto barrier = &MPI_Barrier_init;
inline constexpr auto broadcast = &MPI_Bcast_init;
inline constexpr auto gather = &MPI_Gather_init;
inline constexpr auto reduce = &MPI_Reduce_init;
inline constexpr auto reduce_scatter = &MPI_Reduce_scatter_block_init;
inline constexpr auto scatter = &MPI_Scatter_init;
inline constexpr auto scan = &MPI_Scan_init;
inline constexpr auto exclusive_scan = &MPI_Exscan_init;
inline constexpr auto neighbor_all_gather = &MPI_Neighbor_allgather_init;
inline constexpr auto neighbor_all_to_all = &MPI_Neighbor_alltoall_init;
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
inline constexpr bool exists = true;
inline constexpr auto all_gather = &MPIX_Allgather_init;
inline constexpr auto all_reduce = &MPIX_Allreduce_init;
inline constexpr auto all_to_all = &MPIX_Alltoall_init;
inline constexpr auto barrier = &MPIX_Barrier_init;
inline constexpr auto broadcast = &MPIX_Bcast_init;
inline constexpr auto gather = &MPIX_Gather_init;
inline constexpr auto reduce = &MPIX_Reduce_init;
inline constexpr auto reduce_scatter = &MPIX_Reduce_scatter_block_init;
inline constexpr auto scatter = &MPIX_Scatter_init;
inline constexpr auto scan = &MPIX_Scan_init;
inline constexpr auto exclusive_scan = &MPIX_Exscan_init;
inline constexpr auto neighbor_all_gather = &MPIX_Neighbor_allgather_init;
inline constexpr auto neighbor_all_to_all = &MPIX_Neighbor_alltoall_init;
#else
inline constexpr bool exists = false;
inline constexpr missing_function<MPI_ERR_OTHER> all_gather, all_reduce, all_to_all, barrier,
    broadcast, gather, reduce, reduce_scatter, scatter, scan, exclusive_scan, neighbor_all_gather,
    neighbor_all_to_all;
#endif

/// Whether requests of all_gather, gather and scatter can be used again. MPICH 4.0 copies some
/// blocks once, when it makes the request, and a later start sends what was there then, or fails.
#if defined(MPICH_VERSION) || defined(MPICH_NAME)
inline constexpr bool moves_blocks = false;
#else
inline constexpr bool moves_blocks = exists;
#endif

}  // namespace cohort::mpi::persistent
