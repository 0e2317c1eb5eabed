// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The nonblocking functions of MPI with one 64-bit signature each.

#include <cohort/mpi/layout.hpp>
#include <cohort/mpi/native.hpp>

#include <climits>

/// Each function posts one operation and returns what MPI returns. Counts that fit an int go
/// through the function every MPI has, larger ones through its _c twin. Where MPI has none, a
/// larger count is MPI_ERR_COUNT: mpi::layout folds such data into one element of a derived type.
/// Reductions, which cannot use derived types, are posted in parts of at most max_int_count
/// elements; with a user function also where the twin exists, because MPICH 4.0 loses its
/// communicator in that case. The caller holds mpi::lock.
namespace cohort::mpi::post {

namespace detail {

#if MPI_VERSION >= 4
inline constexpr auto large_isend = &MPI_Isend_c;
inline constexpr auto large_issend = &MPI_Issend_c;
inline constexpr auto large_irsend = &MPI_Irsend_c;
inline constexpr auto large_irecv = &MPI_Irecv_c;
inline constexpr auto large_ibcast = &MPI_Ibcast_c;
inline constexpr auto large_iallreduce = &MPI_Iallreduce_c;
inline constexpr auto large_ireduce = &MPI_Ireduce_c;
inline constexpr auto large_iscan = &MPI_Iscan_c;
inline constexpr auto large_iexscan = &MPI_Iexscan_c;
inline constexpr auto large_ireduce_scatter_block = &MPI_Ireduce_scatter_block_c;
inline constexpr auto large_igather = &MPI_Igather_c;
inline constexpr auto large_iscatter = &MPI_Iscatter_c;
inline constexpr auto large_iallgather = &MPI_Iallgather_c;
inline constexpr auto large_ialltoall = &MPI_Ialltoall_c;
inline constexpr auto large_ineighbor_allgather = &MPI_Ineighbor_allgather_c;
inline constexpr auto large_ineighbor_alltoall = &MPI_Ineighbor_alltoall_c;
inline constexpr auto large_imrecv = &MPI_Imrecv_c;
inline constexpr auto large_igatherv = &MPI_Igatherv_c;
inline constexpr auto large_iscatterv = &MPI_Iscatterv_c;
inline constexpr auto large_iallgatherv = &MPI_Iallgatherv_c;
inline constexpr auto large_ialltoallv = &MPI_Ialltoallv_c;
inline constexpr auto large_ineighbor_allgatherv = &MPI_Ineighbor_allgatherv_c;
inline constexpr auto large_ineighbor_alltoallv = &MPI_Ineighbor_alltoallv_c;
inline constexpr auto large_ireduce_scatter = &MPI_Ireduce_scatter_c;
#else
inline constexpr missing_function<MPI_ERR_COUNT> large_isend, large_issend, large_irsend,
    large_irecv, large_ibcast, large_iallreduce, large_ireduce, large_iscan, large_iexscan,
    large_ireduce_scatter_block, large_igather, large_iscatter, large_iallgather, large_ialltoall,
    large_ineighbor_allgather, large_ineighbor_alltoall, large_imrecv, large_igatherv,
    large_iscatterv, large_iallgatherv, large_ialltoallv, large_ineighbor_allgatherv,
    large_ineighbor_alltoallv, large_ireduce_scatter;
#endif

[[nodiscard]] constexpr bool fits(MPI_Count count) noexcept { return count <= INT_MAX; }
[[nodiscard]] constexpr int narrow(MPI_Count count) noexcept { return static_cast<int>(count); }

}  // namespace detail

[[nodiscard]] inline int isend(const void* data, MPI_Count count, MPI_Datatype type, int to,
                               int tag, MPI_Comm comm, MPI_Request* request) {
  return detail::fits(count) ? MPI_Isend(data, detail::narrow(count), type, to, tag, comm, request)
                             : detail::large_isend(data, count, type, to, tag, comm, request);
}

[[nodiscard]] inline int issend(const void* data, MPI_Count count, MPI_Datatype type, int to,
                                int tag, MPI_Comm comm, MPI_Request* request) {
  return detail::fits(count) ? MPI_Issend(data, detail::narrow(count), type, to, tag, comm, request)
                             : detail::large_issend(data, count, type, to, tag, comm, request);
}

[[nodiscard]] inline int irsend(const void* data, MPI_Count count, MPI_Datatype type, int to,
                                int tag, MPI_Comm comm, MPI_Request* request) {
  return detail::fits(count) ? MPI_Irsend(data, detail::narrow(count), type, to, tag, comm, request)
                             : detail::large_irsend(data, count, type, to, tag, comm, request);
}

[[nodiscard]] inline int irecv(void* data, MPI_Count count, MPI_Datatype type, int from, int tag,
                               MPI_Comm comm, MPI_Request* request) {
  return detail::fits(count)
             ? MPI_Irecv(data, detail::narrow(count), type, from, tag, comm, request)
             : detail::large_irecv(data, count, type, from, tag, comm, request);
}

/// Persistent ones post nothing; MPI_Start does. `count` must fit an int: fold the layout.
[[nodiscard]] inline int send_init(const void* data, MPI_Count count, MPI_Datatype type, int to,
                                   int tag, MPI_Comm comm, MPI_Request* request) {
  return MPI_Send_init(data, detail::narrow(count), type, to, tag, comm, request);
}
[[nodiscard]] inline int recv_init(void* data, MPI_Count count, MPI_Datatype type, int from,
                                   int tag, MPI_Comm comm, MPI_Request* request) {
  return MPI_Recv_init(data, detail::narrow(count), type, from, tag, comm, request);
}

[[nodiscard]] inline int ibcast(void* data, MPI_Count count, MPI_Datatype type, int root,
                                MPI_Comm comm, MPI_Request* request) {
  return detail::fits(count) ? MPI_Ibcast(data, detail::narrow(count), type, root, comm, request)
                             : detail::large_ibcast(data, count, type, root, comm, request);
}

[[nodiscard]] inline int iallreduce(const void* in, void* out, MPI_Count count, MPI_Datatype type,
                                    MPI_Op op, MPI_Comm comm, MPI_Request* request) {
  return detail::fits(count)
             ? MPI_Iallreduce(in, out, detail::narrow(count), type, op, comm, request)
             : detail::large_iallreduce(in, out, count, type, op, comm, request);
}

[[nodiscard]] inline int ireduce(const void* in, void* out, MPI_Count count, MPI_Datatype type,
                                 MPI_Op op, int root, MPI_Comm comm, MPI_Request* request) {
  return detail::fits(count)
             ? MPI_Ireduce(in, out, detail::narrow(count), type, op, root, comm, request)
             : detail::large_ireduce(in, out, count, type, op, root, comm, request);
}

[[nodiscard]] inline int iscan(const void* in, void* out, MPI_Count count, MPI_Datatype type,
                               MPI_Op op, MPI_Comm comm, MPI_Request* request) {
  return detail::fits(count) ? MPI_Iscan(in, out, detail::narrow(count), type, op, comm, request)
                             : detail::large_iscan(in, out, count, type, op, comm, request);
}

[[nodiscard]] inline int iexscan(const void* in, void* out, MPI_Count count, MPI_Datatype type,
                                 MPI_Op op, MPI_Comm comm, MPI_Request* request) {
  return detail::fits(count) ? MPI_Iexscan(in, out, detail::narrow(count), type, op, comm, request)
                             : detail::large_iexscan(in, out, count, type, op, comm, request);
}

[[nodiscard]] inline int ireduce_scatter_block(const void* in, void* out, MPI_Count count,
                                               MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                                               MPI_Request* request) {
  return detail::fits(count)
             ? MPI_Ireduce_scatter_block(in, out, detail::narrow(count), type, op, comm, request)
             : detail::large_ireduce_scatter_block(in, out, count, type, op, comm, request);
}

[[nodiscard]] inline int igather(const void* in, MPI_Count in_count, MPI_Datatype in_type,
                                 void* out, MPI_Count out_count, MPI_Datatype out_type, int root,
                                 MPI_Comm comm, MPI_Request* request) {
  return detail::fits(in_count) && detail::fits(out_count)
             ? MPI_Igather(in, detail::narrow(in_count), in_type, out, detail::narrow(out_count),
                           out_type, root, comm, request)
             : detail::large_igather(in, in_count, in_type, out, out_count, out_type, root, comm,
                                     request);
}

[[nodiscard]] inline int iscatter(const void* in, MPI_Count in_count, MPI_Datatype in_type,
                                  void* out, MPI_Count out_count, MPI_Datatype out_type, int root,
                                  MPI_Comm comm, MPI_Request* request) {
  return detail::fits(in_count) && detail::fits(out_count)
             ? MPI_Iscatter(in, detail::narrow(in_count), in_type, out, detail::narrow(out_count),
                            out_type, root, comm, request)
             : detail::large_iscatter(in, in_count, in_type, out, out_count, out_type, root, comm,
                                      request);
}

[[nodiscard]] inline int iallgather(const void* in, MPI_Count in_count, MPI_Datatype in_type,
                                    void* out, MPI_Count out_count, MPI_Datatype out_type,
                                    MPI_Comm comm, MPI_Request* request) {
  return detail::fits(in_count) && detail::fits(out_count)
             ? MPI_Iallgather(in, detail::narrow(in_count), in_type, out, detail::narrow(out_count),
                              out_type, comm, request)
             : detail::large_iallgather(in, in_count, in_type, out, out_count, out_type, comm,
                                        request);
}

[[nodiscard]] inline int ialltoall(const void* in, MPI_Count in_count, MPI_Datatype in_type,
                                   void* out, MPI_Count out_count, MPI_Datatype out_type,
                                   MPI_Comm comm, MPI_Request* request) {
  return detail::fits(in_count) && detail::fits(out_count)
             ? MPI_Ialltoall(in, detail::narrow(in_count), in_type, out, detail::narrow(out_count),
                             out_type, comm, request)
             : detail::large_ialltoall(in, in_count, in_type, out, out_count, out_type, comm,
                                       request);
}

[[nodiscard]] inline int ineighbor_allgather(const void* in, MPI_Count in_count,
                                             MPI_Datatype in_type, void* out, MPI_Count out_count,
                                             MPI_Datatype out_type, MPI_Comm comm,
                                             MPI_Request* request) {
  return detail::fits(in_count) && detail::fits(out_count)
             ? MPI_Ineighbor_allgather(in, detail::narrow(in_count), in_type, out,
                                       detail::narrow(out_count), out_type, comm, request)
             : detail::large_ineighbor_allgather(in, in_count, in_type, out, out_count, out_type,
                                                 comm, request);
}

[[nodiscard]] inline int ineighbor_alltoall(const void* in, MPI_Count in_count,
                                            MPI_Datatype in_type, void* out, MPI_Count out_count,
                                            MPI_Datatype out_type, MPI_Comm comm,
                                            MPI_Request* request) {
  return detail::fits(in_count) && detail::fits(out_count)
             ? MPI_Ineighbor_alltoall(in, detail::narrow(in_count), in_type, out,
                                      detail::narrow(out_count), out_type, comm, request)
             : detail::large_ineighbor_alltoall(in, in_count, in_type, out, out_count, out_type,
                                                comm, request);
}

/// Receives the message of a matched probe.
[[nodiscard]] inline int imrecv(void* data, MPI_Count count, MPI_Datatype type,
                                MPI_Message* message, MPI_Request* request) {
  return detail::fits(count) ? MPI_Imrecv(data, detail::narrow(count), type, message, request)
                             : detail::large_imrecv(data, count, type, message, request);
}

[[nodiscard]] inline int igatherv(const void* in, MPI_Count count, MPI_Datatype type, void* out,
                                  const blocks& parts, int root, MPI_Comm comm,
                                  MPI_Request* request) {
  if (!parts.large() && detail::fits(count)) {
    return MPI_Igatherv(in, detail::narrow(count), type, out, parts.counts(), parts.displacements(),
                        parts.type(), root, comm, request);
  }
  return detail::large_igatherv(in, count, type, out, parts.large_counts(),
                                parts.large_displacements(), parts.type(), root, comm, request);
}

[[nodiscard]] inline int iscatterv(const void* in, const blocks& parts, void* out, MPI_Count count,
                                   MPI_Datatype type, int root, MPI_Comm comm,
                                   MPI_Request* request) {
  if (!parts.large() && detail::fits(count)) {
    return MPI_Iscatterv(in, parts.counts(), parts.displacements(), parts.type(), out,
                         detail::narrow(count), type, root, comm, request);
  }
  return detail::large_iscatterv(in, parts.large_counts(), parts.large_displacements(),
                                 parts.type(), out, count, type, root, comm, request);
}

[[nodiscard]] inline int iallgatherv(const void* in, MPI_Count count, MPI_Datatype type, void* out,
                                     const blocks& parts, MPI_Comm comm, MPI_Request* request) {
  if (!parts.large() && detail::fits(count)) {
    return MPI_Iallgatherv(in, detail::narrow(count), type, out, parts.counts(),
                           parts.displacements(), parts.type(), comm, request);
  }
  return detail::large_iallgatherv(in, count, type, out, parts.large_counts(),
                                   parts.large_displacements(), parts.type(), comm, request);
}

[[nodiscard]] inline int ineighbor_allgatherv(const void* in, MPI_Count count, MPI_Datatype type,
                                              void* out, const blocks& parts, MPI_Comm comm,
                                              MPI_Request* request) {
  if (!parts.large() && detail::fits(count)) {
    return MPI_Ineighbor_allgatherv(in, detail::narrow(count), type, out, parts.counts(),
                                    parts.displacements(), parts.type(), comm, request);
  }
  return detail::large_ineighbor_allgatherv(in, count, type, out, parts.large_counts(),
                                            parts.large_displacements(), parts.type(), comm,
                                            request);
}

[[nodiscard]] inline int ialltoallv(const void* in, blocks& sent, void* out, blocks& received,
                                    MPI_Comm comm, MPI_Request* request) {
  if (!sent.large() && !received.large()) {
    return MPI_Ialltoallv(in, sent.counts(), sent.displacements(), sent.type(), out,
                          received.counts(), received.displacements(), received.type(), comm,
                          request);
  }
  sent.widen();
  received.widen();
  return detail::large_ialltoallv(in, sent.large_counts(), sent.large_displacements(), sent.type(),
                                  out, received.large_counts(), received.large_displacements(),
                                  received.type(), comm, request);
}

[[nodiscard]] inline int ineighbor_alltoallv(const void* in, blocks& sent, void* out,
                                             blocks& received, MPI_Comm comm,
                                             MPI_Request* request) {
  if (!sent.large() && !received.large()) {
    return MPI_Ineighbor_alltoallv(in, sent.counts(), sent.displacements(), sent.type(), out,
                                   received.counts(), received.displacements(), received.type(),
                                   comm, request);
  }
  sent.widen();
  received.widen();
  return detail::large_ineighbor_alltoallv(
      in, sent.large_counts(), sent.large_displacements(), sent.type(), out,
      received.large_counts(), received.large_displacements(), received.type(), comm, request);
}

/// Needs blocks that follow each other. Folded ones are MPI_ERR_COUNT: reductions cannot use them.
[[nodiscard]] inline int ireduce_scatter(const void* in, void* out, const blocks& parts, MPI_Op op,
                                         MPI_Comm comm, MPI_Request* request) {
  if (parts.folded()) {
    return MPI_ERR_COUNT;
  }
  if (!parts.large()) {
    return MPI_Ireduce_scatter(in, out, parts.counts(), parts.type(), op, comm, request);
  }
  return detail::large_ireduce_scatter(in, out, parts.large_counts(), parts.type(), op, comm,
                                       request);
}

}  // namespace cohort::mpi::post
