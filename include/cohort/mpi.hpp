// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The layer mpi: MPI's objects as C++ objects that clean up after themselves. It needs no event
/// loop and no Asio, and can be used beside MPI's own functions:
///
/// \code
/// #include <cohort/mpi.hpp>
///
/// int main(int argc, char** argv) {
///   const cohort::environment env(argc, argv);                       // MPI_Init ... MPI_Finalize
///   const cohort::mpi::comm node = cohort::mpi::comm_ref::world().split_node();
///   int sum = node.rank();
///   cohort::mpi::request request;
///   cohort::mpi::check(MPI_Iallreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, node.native(),
///                                     request.out()),
///                      "MPI_Iallreduce");                            // throws what MPI reports
///   request.wait();
/// }
/// \endcode

#include <cohort/mpi/comm.hpp>
#include <cohort/mpi/datatype.hpp>
#include <cohort/mpi/environment.hpp>
#include <cohort/mpi/error.hpp>
#include <cohort/mpi/layout.hpp>
#include <cohort/mpi/lock.hpp>
#include <cohort/mpi/native.hpp>
#include <cohort/mpi/op.hpp>
#include <cohort/mpi/post.hpp>
#include <cohort/mpi/progress_request.hpp>
#include <cohort/mpi/request.hpp>
#include <cohort/mpi/shared_window.hpp>
#include <cohort/mpi/topology.hpp>
